// Names of services and of pods behind headless services, for a cluster without CoreDNS and kube-proxy.
//
// Every answer is looked up in the API server when it is asked for: a name that has just
// become ready is found at once. A service is answered with the addresses of its pods, also
// when it has one of its own, since nothing in this cluster would forward that.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	ttl    = 1
	within = 3 * time.Second
)

type slices struct {
	Items []struct {
		Endpoints []struct {
			Addresses  []string
			Hostname   string
			Conditions struct{ Ready *bool }
		}
	}
}

type resolver struct {
	api    string
	client *http.Client
	suffix string
}

var errNoSuchName = errors.New("no such name")

// lookUp answers SERVICE.NAMESPACE.svc.DOMAIN and HOST.SERVICE.NAMESPACE.svc.DOMAIN.
func (r *resolver) lookUp(name string) ([][4]byte, error) {
	inner, ours := strings.CutSuffix(strings.ToLower(strings.TrimSuffix(name, ".")), r.suffix)
	if !ours {
		return nil, errNoSuchName
	}
	parts := strings.Split(inner, ".")
	host := ""
	if len(parts) == 3 {
		host, parts = parts[0], parts[1:]
	}
	if len(parts) != 2 {
		return nil, errNoSuchName
	}
	found, err := r.endpoints(parts[1], parts[0])
	if err != nil {
		return nil, err
	}
	var addresses [][4]byte
	for _, slice := range found.Items {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if !ready || (host != "" && endpoint.Hostname != host) {
				continue
			}
			for _, address := range endpoint.Addresses {
				if four := net.ParseIP(address).To4(); four != nil {
					addresses = append(addresses, [4]byte(four))
				}
			}
		}
	}
	if len(addresses) == 0 {
		return nil, errNoSuchName
	}
	return addresses, nil
}

func (r *resolver) endpoints(namespace, service string) (*slices, error) {
	address := fmt.Sprintf("%s/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices?labelSelector=%s",
		r.api, url.PathEscape(namespace), url.QueryEscape("kubernetes.io/service-name="+service))
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, response.Status)
	}
	found := &slices{}
	return found, json.NewDecoder(response.Body).Decode(found)
}

// answer is the whole reply to one question: other types of a name that exists get an empty one.
func (r *resolver) answer(packet []byte) ([]byte, error) {
	var asked dnsmessage.Message
	if err := asked.Unpack(packet); err != nil {
		return nil, err
	}
	message := dnsmessage.Message{Header: asked.Header, Questions: asked.Questions}
	message.Response, message.Authoritative, message.RecursionAvailable = true, true, true
	for _, question := range message.Questions {
		addresses, err := r.lookUp(question.Name.String())
		switch {
		case errors.Is(err, errNoSuchName):
			message.RCode = dnsmessage.RCodeNameError
		case err != nil:
			log.Printf("%s: %v", question.Name, err)
			message.RCode = dnsmessage.RCodeServerFailure
		case question.Type == dnsmessage.TypeA:
			for _, address := range addresses {
				message.Answers = append(message.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: ttl},
					Body:   &dnsmessage.AResource{A: address},
				})
			}
		}
	}
	return message.Pack()
}

func (r *resolver) serve(connection net.PacketConn) error {
	for {
		packet := make([]byte, 1500)
		length, from, err := connection.ReadFrom(packet)
		if err != nil {
			return err
		}
		go func() {
			reply, err := r.answer(packet[:length])
			if err == nil {
				_, err = connection.WriteTo(reply, from)
			}
			if err != nil {
				log.Printf("a question of %s: %v", from, err)
			}
		}()
	}
}

func run() error {
	api := flag.String("api", "", "address of the API server")
	authority := flag.String("ca", "", "its certificate authority")
	certificate := flag.String("certificate", "", "our certificate")
	key := flag.String("key", "", "and its key")
	listen := flag.String("listen", "", "address to answer at")
	domain := flag.String("domain", "cluster.local", "domain of the cluster")
	flag.Parse()

	pem, err := os.ReadFile(*authority)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	connection, err := net.ListenPacket("udp4", *listen)
	if err != nil {
		return err
	}
	r := &resolver{api: *api, client: &http.Client{Transport: transport}, suffix: ".svc." + *domain}
	return r.serve(connection)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
