// Makes lookups with grpc-go over a channel with a service configuration, as balance.py asks.
// balance_client.py describes its arguments, input and output.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	pb "embag/interop/embag/v1"
)

const (
	workers = 4
	pause   = 20 * time.Millisecond
)

var request = &pb.LookupRequest{Model: "spec", Queries: []*pb.BagQuery{{
	Table: "emb_table", Indices: []int64{0, 2}, NumBags: 1}}}

type load struct {
	conn   *grpc.ClientConn
	lock   sync.Mutex
	counts map[uint64]int
	failed int
	why    string
}

func (l *load) lookup() (uint64, error) {
	answer := new(pb.LookupResponse)
	err := l.conn.Invoke(context.Background(), "/embag.v1.EmbeddingBag/Lookup", request, answer)
	return answer.Version, err
}

func (l *load) work() {
	for {
		version, err := l.lookup()
		l.lock.Lock()
		if err == nil {
			l.counts[version]++
		} else {
			l.failed++
			l.why = err.Error()
		}
		l.lock.Unlock()
		time.Sleep(pause)
	}
}

// Returns the results since the last call, as a line.
func (l *load) take() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	var line strings.Builder
	for version, count := range l.counts {
		fmt.Fprintf(&line, "%d:%d ", version, count)
	}
	fmt.Fprintf(&line, "failed:%d %s", l.failed, l.why)
	l.counts, l.failed = map[uint64]int{}, 0
	return line.String()
}

func connect(config, addresses string) *grpc.ClientConn {
	servers := manual.NewBuilderWithScheme("servers")
	var state resolver.State
	for _, address := range strings.Split(addresses, ",") {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	servers.InitialState(state)
	conn, err := grpc.NewClient("servers:///embag", grpc.WithResolvers(servers),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(config))
	if err != nil {
		log.Fatal(err)
	}
	return conn
}

func main() {
	config, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	l := &load{conn: connect(string(config), os.Args[2]), counts: map[uint64]int{}}
	if _, err := l.lookup(); err != nil {
		fmt.Println(status.Code(err))
		return
	}
	fmt.Println("OK")
	for i := 0; i < workers; i++ {
		go l.work()
	}
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		fmt.Println(l.take())
	}
}
