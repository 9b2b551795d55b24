// A device plugin without devices: the kubelet counts, allocates and takes back
// as it does with real ones. It offers as many as a file says, and goes on
// reading that file, so that a test can change the number while the node runs.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const readEvery = 100 * time.Millisecond

type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer
	resource, socket, countFile string
}

// The kubelet finds the socket in its registry folder and asks who is there.
func (p *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.DevicePlugin,
		Name:              p.resource,
		Endpoint:          p.socket,
		SupportedVersions: []string{deviceplugin.Version},
	}, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %t %s", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (p *plugin) GetDevicePluginOptions(context.Context, *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	return &deviceplugin.DevicePluginOptions{}, nil
}

func (p *plugin) count() (int, error) {
	text, err := os.ReadFile(p.countFile)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func (p *plugin) ListAndWatch(_ *deviceplugin.Empty, stream grpc.ServerStreamingServer[deviceplugin.ListAndWatchResponse]) error {
	for said := -1; ; {
		count, err := p.count()
		if err != nil {
			log.Printf("the number of devices cannot be read: %v", err)
		} else if count != said {
			if err := stream.Send(&deviceplugin.ListAndWatchResponse{Devices: devices(count)}); err != nil {
				return err
			}
			log.Printf("offering %d of %s", count, p.resource)
			said = count
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-time.After(readEvery):
		}
	}
}

func devices(count int) []*deviceplugin.Device {
	all := make([]*deviceplugin.Device, count)
	for i := range all {
		all[i] = &deviceplugin.Device{ID: strconv.Itoa(i), Health: deviceplugin.Healthy}
	}
	return all
}

// A container sees what it got: /dev/nvidiaN (nothing but a null device) and NVIDIA_VISIBLE_DEVICES.
func (p *plugin) Allocate(_ context.Context, request *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	response := &deviceplugin.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		slices.Sort(container.DevicesIds)
		got := &deviceplugin.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		}
		for _, id := range container.DevicesIds {
			got.Devices = append(got.Devices, &deviceplugin.DeviceSpec{
				HostPath: "/dev/null", ContainerPath: "/dev/nvidia" + id, Permissions: "rw",
			})
		}
		response.ContainerResponses = append(response.ContainerResponses, got)
	}
	return response, nil
}

func run() error {
	resource := flag.String("resource", "nvidia.com/gpu", "name of the extended resource")
	registry := flag.String("registry", "", "the kubelet's folder plugins_registry")
	countFile := flag.String("count-file", "", "file that says how many devices there are")
	flag.Parse()

	p := &plugin{resource: *resource, countFile: *countFile}
	if _, err := p.count(); err != nil {
		return fmt.Errorf("--count-file: %w", err)
	}
	if err := os.MkdirAll(*registry, 0o750); err != nil {
		return err
	}
	p.socket = filepath.Join(*registry, "fakegpu.sock")
	if err := os.Remove(p.socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, p)
	registration.RegisterRegistrationServer(server, p)
	return server.Serve(listener)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
