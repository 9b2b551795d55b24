// FerretDB v1 with its SQLite backend as one program, for tests: the published command
// refuses to start when it is built from another module, its package does not.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatalf("usage: %s ADDRESS FOLDER", os.Args[0])
	}
	host, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: os.Args[1]},
		Handler:   "sqlite",
		SQLiteURL: "file:" + os.Args[2] + "/?mode=rwc",
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := host.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
