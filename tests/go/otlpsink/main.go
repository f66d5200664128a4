// SPDX-License-Identifier: Apache-2.0

// A real grpc-go OTLP server for the gateway's tests. It keeps nothing and counts what comes.
//
// It answers as every grpc-go server does: in the compression of the request. Beside grpc-go's own gzip it knows
// zstd and snappy, as the Collector registers them.
//
// Standard output has one line when it listens: the port. A line on standard input is a command:
//
//	counts       prints {"requests":..,"items":..,"encodings":{"gzip":..}}
//	reject N     the answers from now on are partial successes that reject N items (0 = none)
//
// It ends with its standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"sync"

	_ "github.com/mostynb/go-grpc-compression/nonclobbering/snappy"
	_ "github.com/mostynb/go-grpc-compression/nonclobbering/zstd"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	data "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats"
)

// Counts is what has come so far.
type Counts struct {
	Requests  int            `json:"requests"`
	Items     int            `json:"items"`
	Encodings map[string]int `json:"encodings"`
}

type sink struct {
	sync.Mutex
	counts Counts
	reject int64
}

// take counts a request, and says how many of its items to reject.
func (s *sink) take(items int) int64 {
	s.Lock()
	defer s.Unlock()
	s.counts.Requests++
	s.counts.Items += items
	return s.reject
}

func (s *sink) print() {
	s.Lock()
	defer s.Unlock()
	line, err := json.Marshal(s.counts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

// command does what a line of standard input says.
func (s *sink) command(line string) {
	var reject int64
	switch {
	case line == "counts":
		s.print()
	case strings.HasPrefix(line, "reject "):
		if _, err := fmt.Sscanf(line, "reject %d", &reject); err != nil {
			log.Fatal(err)
		}
		s.Lock()
		s.reject = reject
		s.Unlock()
	default:
		log.Fatalf("%q is not a command", line)
	}
}

// The stats handler sees the encoding of each request; grpc-go does not show it to services.

func (s *sink) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (s *sink) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (s *sink) HandleConn(context.Context, stats.ConnStats)                       {}
func (s *sink) HandleRPC(_ context.Context, seen stats.RPCStats) {
	if head, ok := seen.(*stats.InHeader); ok {
		s.Lock()
		defer s.Unlock()
		s.counts.Encodings[head.Compression]++
	}
}

type metricsService struct {
	metrics.UnimplementedMetricsServiceServer
	*sink
}

func (s metricsService) Export(
	_ context.Context, request *metrics.ExportMetricsServiceRequest,
) (*metrics.ExportMetricsServiceResponse, error) {
	items := 0
	for _, resource := range request.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, metric := range scope.Metrics {
				items += points(metric)
			}
		}
	}
	response := &metrics.ExportMetricsServiceResponse{}
	if rejected := s.take(items); rejected > 0 {
		response.PartialSuccess = &metrics.ExportMetricsPartialSuccess{
			RejectedDataPoints: rejected,
			ErrorMessage:       "the test wants it so",
		}
	}
	return response, nil
}

func points(metric *data.Metric) int {
	return len(metric.GetGauge().GetDataPoints()) +
		len(metric.GetSum().GetDataPoints()) +
		len(metric.GetHistogram().GetDataPoints()) +
		len(metric.GetExponentialHistogram().GetDataPoints()) +
		len(metric.GetSummary().GetDataPoints())
}

type traceService struct {
	traces.UnimplementedTraceServiceServer
	*sink
}

func (s traceService) Export(
	_ context.Context, request *traces.ExportTraceServiceRequest,
) (*traces.ExportTraceServiceResponse, error) {
	items := 0
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			items += len(scope.Spans)
		}
	}
	response := &traces.ExportTraceServiceResponse{}
	if rejected := s.take(items); rejected > 0 {
		response.PartialSuccess = &traces.ExportTracePartialSuccess{RejectedSpans: rejected}
	}
	return response, nil
}

type logsService struct {
	logs.UnimplementedLogsServiceServer
	*sink
}

func (s logsService) Export(
	_ context.Context, request *logs.ExportLogsServiceRequest,
) (*logs.ExportLogsServiceResponse, error) {
	items := 0
	for _, resource := range request.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			items += len(scope.LogRecords)
		}
	}
	response := &logs.ExportLogsServiceResponse{}
	if rejected := s.take(items); rejected > 0 {
		response.PartialSuccess = &logs.ExportLogsPartialSuccess{RejectedLogRecords: rejected}
	}
	return response, nil
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--version" {
		fmt.Println("otlpsink, grpc-go", grpc.Version)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	all := &sink{counts: Counts{Encodings: map[string]int{}}}
	server := grpc.NewServer(grpc.StatsHandler(all))
	metrics.RegisterMetricsServiceServer(server, metricsService{sink: all})
	traces.RegisterTraceServiceServer(server, traceService{sink: all})
	logs.RegisterLogsServiceServer(server, logsService{sink: all})
	go func() {
		log.Fatal(server.Serve(listener))
	}()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		all.command(lines.Text())
	}
}
