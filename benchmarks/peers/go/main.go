// Quamina (Go). usage: peers WORKLOAD EVENTS PATTERNS
//
// Needs `go get quamina.net/go/quamina/v2`; skipped where the module cannot be had.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"quamina.net/go/quamina/v2"
)

const buildLimit = 300 * time.Second

var (
	warm    = seconds("WARM_S", 2)
	measure = seconds("MEASURE_S", 3)
	cut     = seconds("CUT_S", 60)
)

func seconds(name string, byDefault float64) time.Duration {
	if value, err := strconv.ParseFloat(os.Getenv(name), 64); err == nil {
		byDefault = value
	}
	return time.Duration(byDefault * float64(time.Second))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func lines(path string) [][]byte {
	b, err := os.ReadFile(path)
	check(err)
	return bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
}

func peakMB() int { return memoryKB("VmHWM") / 1024 }

// residentKB gives back what is free first.
func residentKB() int {
	debug.FreeOSMemory()
	return memoryKB("VmRSS")
}

func memoryKB(field string) (kb int) {
	f, err := os.Open("/proc/self/status")
	check(err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), field) {
			_, err = fmt.Sscanf(strings.TrimSpace(s.Text()[6:]), "%d", &kb)
			check(err)
		}
	}
	return kb
}

// cpu is the core time of the whole process.
func cpu() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func skip(workload, reason string) {
	fmt.Printf("{\"peer\":\"quamina-go\",\"workload\":%q,\"skip\":%q}\n", workload, reason)
	os.Exit(0)
}

func main() {
	workload, events, patterns := os.Args[1], lines(os.Args[2]), lines(os.Args[3])
	if most, err := strconv.Atoi(os.Getenv("EVENT_LIMIT")); err == nil && most < len(events) {
		events = events[:most]
	}
	before := residentKB()
	t := time.Now()
	q, err := quamina.New()
	check(err)
	for n, line := range patterns {
		var p struct {
			ID      int
			Pattern json.RawMessage
		}
		check(json.Unmarshal(line, &p))
		if err := q.AddPattern(p.ID, string(p.Pattern)); err != nil {
			skip(workload, fmt.Sprintf("pattern %s: %v", p.Pattern, err))
		}
		if n%16 == 0 && time.Since(t) > buildLimit {
			skip(workload, fmt.Sprintf("build over 300 s at pattern %d, rss %d MB", n, peakMB()))
		}
	}
	match := func(e []byte) []quamina.X {
		m, err := q.MatchesForEvent(e)
		check(err)
		return m
	}
	match(events[0])
	build := time.Since(t)
	held := residentKB() - before

	var total, read int
	var sum uint64
	begun := cpu()
	for i, e := range events {
		m := match(e)
		total += len(m)
		for _, x := range m {
			sum += (uint64(i)*1000003 + uint64(x.(int))) * 0x9E3779B97F4A7C15
		}
		if read++; read%16 == 0 && cpu()-begun > cut {
			break // too slow for a whole pass: the result says how many events it read
		}
	}
	pass := func() (n int) {
		for _, e := range events {
			n += len(match(e))
		}
		return n
	}
	best, passes := cpu()-begun, 1
	if best < cut {
		for cpu()-begun < warm {
			pass()
		}
		best, passes, begun = time.Hour, 0, cpu()
		for ok := true; ok; ok = cpu()-begun < measure {
			started := cpu()
			if pass() != total {
				skip(workload, "passes disagree")
			}
			best = min(best, cpu()-started)
			passes++
		}
	}
	n := float64(read)
	fmt.Printf("{\"peer\":\"quamina-go\",\"workload\":%q,\"best_ns\":%.1f,\"events\":%d,\"passes\":%d,\"matches\":%d,\"check\":\"%016x\",\"build_s\":%.3f,\"held_kb\":%d,\"rss_mb\":%d}\n",
		workload, float64(best.Nanoseconds())/n, read, passes, total, sum, build.Seconds(), held, peakMB())
}
