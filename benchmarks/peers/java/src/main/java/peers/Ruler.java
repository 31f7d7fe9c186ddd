package peers;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import software.amazon.event.ruler.Machine;

/** AWS Event Ruler. usage: Ruler WORKLOAD EVENTS PATTERNS; the environment as for the Rust drivers. Warms up 6 times as long. */
public class Ruler {
    static final double BUILD_LIMIT_S = 300, WARM_S = seconds("WARM_S", 2), MEASURE_S = seconds("MEASURE_S", 3), CUT_S = seconds("CUT_S", 60);

    static double seconds(String name, double byDefault) {
        String text = System.getenv(name);
        return text == null ? byDefault : Double.parseDouble(text);
    }

    static double since(long t) {
        return (System.nanoTime() - t) / 1e9;
    }

    /** Nanoseconds that this thread was on a core: garbage collection and compilation are others' time, in its favour. */
    static long coreNs() {
        return java.lang.management.ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    static double coreSince(long begun) {
        return (coreNs() - begun) / 1e9;
    }

    static void fail(String workload, String reason) {
        System.out.printf("{\"peer\":\"event-ruler\",\"workload\":\"%s\",\"skip\":\"%s\"}%n",
                workload, reason.replace('"', '\'').replace('\n', ' '));
        System.exit(0);
    }

    static long rssKb(String field) throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith(field)) {
                return Long.parseLong(line.replaceAll("\\D", ""));
            }
        }
        return 0;
    }

    /** What the heap holds once garbage is collected: what is resident would be what the collector has not given back, too. */
    static long heapKb() {
        System.gc();
        return java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed() / 1024;
    }

    public static void main(String[] args) throws Exception {
        String workload = args[0];
        // Event Ruler takes a String: the bytes are decoded here, outside the clock.
        long most = Long.parseLong(System.getenv().getOrDefault("EVENT_LIMIT", "999999999"));
        String[] events = Files.readAllLines(Path.of(args[1])).stream().limit(most).toArray(String[]::new);
        List<String> lines = Files.readAllLines(Path.of(args[2]));

        long before = heapKb();
        long t = System.nanoTime();
        Machine machine = Machine.builder().build();
        ObjectMapper json = new ObjectMapper();
        int added = 0;
        for (String line : lines) {
            JsonNode p = json.readTree(line);
            try {
                machine.addRule(p.get("id").asText(), p.get("pattern").toString());
            } catch (Exception e) {
                fail(workload, "pattern " + line + ": " + e.getMessage());
            }
            if (++added % 16 == 0 && since(t) > BUILD_LIMIT_S) {
                fail(workload, "build over 300 s at pattern " + added + ", rss " + rssKb("VmHWM") / 1024 + " MB");
            }
        }
        machine.rulesForJSONEvent(events[0]);
        double buildS = since(t);
        long held = heapKb() - before;
        java.lang.ref.Reference.reachabilityFence(lines);
        lines = null;

        long total = 0, check = 0;
        int read = 0;
        long begun = coreNs();
        for (int e = 0; e < events.length; e++) {
            List<String> m = machine.rulesForJSONEvent(events[e]);
            total += m.size();
            for (String id : m) {
                check += (e * 1000003L + Long.parseLong(id)) * 0x9E3779B97F4A7C15L;
            }
            if (++read % 16 == 0 && coreSince(begun) > CUT_S) {
                break; // too slow for a whole pass: the result says how many events it read
            }
        }
        double best = coreSince(begun);
        int passes = 1;
        if (best < CUT_S) {
            while (coreSince(begun) < 6 * WARM_S) {
                pass(machine, events);
            }
            passes = 0;
            best = Double.MAX_VALUE;
            begun = coreNs();
            do {
                long t1 = coreNs();
                if (pass(machine, events) != total) {
                    fail(workload, "passes disagree");
                }
                best = Math.min(best, coreSince(t1));
                passes++;
            } while (coreSince(begun) < MEASURE_S);
        }
        double n = read;
        System.out.printf("{\"peer\":\"event-ruler\",\"workload\":\"%s\",\"best_ns\":%.1f,\"events\":%d,\"passes\":%d,"
                + "\"matches\":%d,\"check\":\"%016x\",\"build_s\":%.3f,\"held_kb\":%d,\"rss_mb\":%d}%n",
                workload, best / n * 1e9, read, passes, total, check, buildS, held, rssKb("VmHWM") / 1024);
    }

    static long pass(Machine machine, String[] events) throws Exception {
        long n = 0;
        for (String e : events) {
            n += machine.rulesForJSONEvent(e).size();
        }
        return n;
    }
}
