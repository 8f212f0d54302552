package daemon

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/agentixd/agentixd/daemon/dispatch"
	"github.com/agentixd/agentixd/daemon/sandboxes"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	maxScrapes    = 4 // at once
	scrapeTimeout = 10 * time.Second
)

var (
	sandboxesDesc = prometheus.NewDesc("agentix_sandboxes", "Sandboxes by state; those that wait in pools are not counted.", []string{"state"}, nil)
	queuedDesc    = prometheus.NewDesc("agentix_sandbox_starts_queued", "Creates that wait for their turn.", nil, nil)
	callsDesc     = prometheus.NewDesc("agentix_calls_open", "Calls without an outcome.", nil, nil)
	poolDesc      = prometheus.NewDesc("agentix_pool_sandboxes", "Sandboxes of a template's pool: ready or starting.", []string{"template", "state"}, nil)
	poolSizeDesc  = prometheus.NewDesc("agentix_pool_size", "Sandboxes that a template's pool should have.", []string{"template"}, nil)
	poolTakesDesc = prometheus.NewDesc("agentix_pool_takes_total", "Creates by template: hit = one was ready, miss = one had to be started.", []string{"template", "result"}, nil)
	poolFailsDesc = prometheus.NewDesc("agentix_pool_failures", "Starts for a template's pool that failed in a row.", []string{"template"}, nil)
)

// metrics reads what there is to tell when it is asked.
type metrics struct {
	manager    *sandboxes.Manager
	dispatcher *dispatch.Dispatcher
}

// newMetrics is the handler of GET /metrics, with a registry of its own: two daemons in one
// process tell nothing of each other.
func newMetrics(manager *sandboxes.Manager, dispatcher *dispatch.Dispatcher, logger *slog.Logger) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&metrics{manager, dispatcher}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn), MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
	})
}

// Describe implements prometheus.Collector.
func (*metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{sandboxesDesc, queuedDesc, callsDesc, poolDesc, poolSizeDesc, poolTakesDesc, poolFailsDesc} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), labels...)
	}
	stats := c.manager.Stats()
	for state, n := range stats.States {
		gauge(sandboxesDesc, n, strings.ToLower(string(state)))
	}
	gauge(queuedDesc, stats.Queued)
	gauge(callsDesc, c.dispatcher.Open())
	for id, p := range stats.Pools {
		gauge(poolDesc, p.Ready, id, "ready")
		gauge(poolDesc, p.Starting, id, "starting")
		gauge(poolSizeDesc, p.Size, id)
		gauge(poolFailsDesc, p.Failures, id)
		ch <- prometheus.MustNewConstMetric(poolTakesDesc, prometheus.CounterValue, float64(p.Hits), id, "hit")
		ch <- prometheus.MustNewConstMetric(poolTakesDesc, prometheus.CounterValue, float64(p.Misses), id, "miss")
	}
}
