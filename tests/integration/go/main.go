// Calls embagd with grpc-go as any client would; prints one line for each check, "ok NAME" or "FAIL
// NAME: why".
// Usage: interop --target ADDRESS [--ca FILE [--cert FILE --key FILE]]
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	health "google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	pb "embag/interop/embag/v1"
)

const (
	lookupPath = "/embag.v1.EmbeddingBag/Lookup"
	streamPath = "/embag.v1.EmbeddingBag/LookupStream"
	streamed   = 1000
	largeRows  = 320 // of 16 KiB: 5 MiB
)

func request(id uint64) *pb.LookupRequest {
	return &pb.LookupRequest{RequestId: id, Model: "spec", Queries: []*pb.BagQuery{{
		Table: "emb_table", Indices: []int64{0, 2, 3, 4}, Offsets: []int64{0, 2, 2}}}}
}

// Returns a request that names the same row of 16 KiB this many times.
func rows(count int) *pb.LookupRequest {
	return &pb.LookupRequest{Model: "spec", Queries: []*pb.BagQuery{{
		Table: "large", IndicesI64: make([]byte, 8*count), IndicesPerBag: 1}}}
}

func checkRows(answer *pb.LookupResponse, err error, count int) error {
	if err == nil && len(answer.Results[0].Values) != count*4096*4 {
		err = fmt.Errorf("%d bytes", len(answer.Results[0].Values))
	}
	return err
}

func checkAnswer(answer *pb.LookupResponse) error {
	want := []float64{-2.1, -2.4, 0, 0, -0.2, 0.8}
	if answer.ErrorCode != 0 || len(answer.Results) != 1 || len(answer.Results[0].Values) != 24 {
		return fmt.Errorf("an unexpected answer: %v", answer)
	}
	for i, value := range want {
		got := math.Float32frombits(binary.LittleEndian.Uint32(answer.Results[0].Values[4*i:]))
		if math.Abs(float64(got)-value) > 1e-5 {
			return fmt.Errorf("values[%d] is %g, not %g", i, got, value)
		}
	}
	return nil
}

func lookup(ctx context.Context, conn *grpc.ClientConn, in *pb.LookupRequest,
	options ...grpc.CallOption) (*pb.LookupResponse, error) {
	out := new(pb.LookupResponse)
	return out, conn.Invoke(ctx, lookupPath, in, out, options...)
}

func openStream(ctx context.Context, conn *grpc.ClientConn) (grpc.ClientStream, error) {
	description := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	return conn.NewStream(ctx, description, streamPath)
}

func expect(err error, code codes.Code) error {
	if status.Code(err) != code {
		return fmt.Errorf("%v instead of %v", err, code)
	}
	return nil
}

func unary(ctx context.Context, conn *grpc.ClientConn) error {
	answer, err := lookup(ctx, conn, request(7))
	if err != nil {
		return err
	}
	return checkAnswer(answer)
}

func stream(ctx context.Context, conn *grpc.ClientConn) error {
	calls, err := openStream(ctx, conn)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		for id := uint64(1); id <= streamed; id++ {
			if err := calls.SendMsg(request(id)); err != nil {
				sent <- err
				return
			}
		}
		sent <- calls.CloseSend()
	}()
	seen := map[uint64]bool{}
	for {
		answer := new(pb.LookupResponse)
		err := calls.RecvMsg(answer)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = checkAnswer(answer)
		}
		if err != nil {
			return err
		}
		seen[answer.RequestId] = true
	}
	if len(seen) != streamed {
		return fmt.Errorf("%d answers", len(seen))
	}
	return <-sent
}

func large(ctx context.Context, conn *grpc.ClientConn) error {
	if _, err := lookup(ctx, conn, rows(largeRows)); status.Code(err) != codes.ResourceExhausted {
		return fmt.Errorf("%v instead of this client's own limit", err)
	}
	answer, err := lookup(ctx, conn, rows(largeRows), grpc.MaxCallRecvMsgSize(64<<20))
	return checkRows(answer, err, largeRows)
}

func deadline(ctx context.Context, conn *grpc.ClientConn) error {
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	calls, err := openStream(short, conn)
	if err == nil {
		err = calls.RecvMsg(new(pb.LookupResponse))
	}
	return expect(err, codes.DeadlineExceeded)
}

func cancel(ctx context.Context, conn *grpc.ClientConn) error {
	for i := 0; i < 100; i++ {
		short, stop := context.WithCancel(ctx)
		calls, err := openStream(short, conn)
		if err != nil {
			stop()
			return err
		}
		stop()
		if err := expect(calls.RecvMsg(new(pb.LookupResponse)), codes.Canceled); err != nil {
			return err
		}
	}
	return unary(ctx, conn)
}

func fault(ctx context.Context, conn *grpc.ClientConn) error {
	bad := request(1)
	bad.Queries[0].Indices[2] = 5
	_, err := lookup(ctx, conn, bad)
	if status.Code(err) != codes.OutOfRange || !strings.Contains(err.Error(), "indices[2] = 5") {
		return fmt.Errorf("%v", err)
	}
	return nil
}

func compressed(ctx context.Context, conn *grpc.ClientConn) error {
	answer, err := lookup(ctx, conn, rows(100), grpc.UseCompressor(gzip.Name))
	return checkRows(answer, err, 100)
}

func healthCheck(ctx context.Context, conn *grpc.ClientConn) error {
	client := health.NewHealthClient(conn)
	answer, err := client.Check(ctx, &health.HealthCheckRequest{Service: "spec"})
	if err == nil && answer.Status != health.HealthCheckResponse_SERVING {
		err = fmt.Errorf("%v", answer.Status)
	}
	if err != nil {
		return err
	}
	watch, err := client.Watch(ctx, &health.HealthCheckRequest{})
	if err != nil {
		return err
	}
	first, err := watch.Recv()
	if err == nil && first.Status != health.HealthCheckResponse_SERVING {
		err = fmt.Errorf("watched: %v", first.Status)
	}
	return err
}

func reflected(ctx context.Context, conn *grpc.ClientConn) error {
	calls, err := reflection.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return err
	}
	err = calls.Send(&reflection.ServerReflectionRequest{
		MessageRequest: &reflection.ServerReflectionRequest_ListServices{}})
	if err != nil {
		return err
	}
	answer, err := calls.Recv()
	if err != nil {
		return err
	}
	if !strings.Contains(answer.String(), "embag.v1.EmbeddingBag") {
		return fmt.Errorf("%v", answer)
	}
	return nil
}

var checks = []struct {
	name string
	run  func(context.Context, *grpc.ClientConn) error
}{
	{"unary", unary}, {"stream", stream}, {"large", large}, {"deadline", deadline},
	{"cancel", cancel}, {"error", fault}, {"gzip", compressed}, {"health", healthCheck},
	{"reflection", reflected},
}

func transport(ca, cert, key string) (credentials.TransportCredentials, error) {
	if ca == "" {
		return insecure.NewCredentials(), nil
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	config.RootCAs.AppendCertsFromPEM(text)
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}

func run(name string, check func(context.Context, *grpc.ClientConn) error,
	conn *grpc.ClientConn) bool {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	if err := check(ctx, conn); err != nil {
		fmt.Printf("FAIL %s: %v\n", name, err)
		return false
	}
	fmt.Println("ok", name)
	return true
}

func main() {
	target := flag.String("target", "", "the server")
	ca := flag.String("ca", "", "certificate of the server's authority")
	cert := flag.String("cert", "", "the client's certificate")
	key := flag.String("key", "", "and its key")
	flag.Parse()
	security, err := transport(*ca, *cert, *key)
	if err == nil {
		var conn *grpc.ClientConn
		if conn, err = grpc.NewClient(*target, grpc.WithTransportCredentials(security)); err == nil {
			defer conn.Close()
			good := true
			for _, check := range checks {
				good = run(check.name, check.run, conn) && good
			}
			if !good {
				os.Exit(1)
			}
			return
		}
	}
	fmt.Println("FAIL start:", err)
	os.Exit(1)
}
