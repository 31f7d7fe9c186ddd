import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;

/**
 * Runs Debezium once for each NAME.properties of a directory, all at the same time, and writes their records to NAME.jsonl.
 *
 * <p>A schema of Kafka Connect is most of a record and the same for each record of a topic. So it is written once, to
 * schemas.jsonl, and a record has its number. The program writes "ready" when all of them read changes. It ends when each has
 * read a record of the table "finish".
 */
public class Golden {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Integer> SCHEMAS = new ConcurrentHashMap<>();
    static PrintStream schemas;

    public static void main(String[] arguments) throws Exception {
        Path directory = Path.of(arguments[0]);
        schemas = open(directory.resolve("schemas.jsonl"));
        Path[] files;
        try (Stream<Path> found = Files.list(directory)) {
            files = found.filter(file -> file.toString().endsWith(".properties")).sorted().toArray(Path[]::new);
        }
        CountDownLatch started = new CountDownLatch(files.length);
        CountDownLatch finished = new CountDownLatch(files.length);
        ExecutorService threads = Executors.newCachedThreadPool();
        DebeziumEngine<?>[] engines = new DebeziumEngine<?>[files.length];
        for (int i = 0; i < files.length; i++) {
            Properties properties = new Properties();
            try (var reader = Files.newBufferedReader(files[i])) {
                properties.load(reader);
            }
            String name = files[i].getFileName().toString().replace(".properties", "");
            PrintStream out = open(directory.resolve(name + ".jsonl"));
            AtomicBoolean ended = new AtomicBoolean();
            engines[i] = DebeziumEngine.create(Json.class)
                    .using(properties)
                    .notifying(record -> {
                        if (record.destination().endsWith(".finish") && !ended.getAndSet(true)) {
                            finished.countDown();
                        } else if (!ended.get()) {
                            write(out, record);
                        }
                    })
                    .using(new DebeziumEngine.ConnectorCallback() {
                        @Override
                        public void pollingStarted() {
                            started.countDown();
                        }
                    })
                    .using((success, message, error) -> {
                        if (!success) {
                            System.err.println(name + ": " + message);
                            if (error != null) {
                                error.printStackTrace();
                            }
                            System.exit(1);
                        }
                    })
                    .build();
            threads.execute(engines[i]);
        }
        started.await();
        System.out.println("ready");
        finished.await();
        for (DebeziumEngine<?> engine : engines) {
            engine.close();
        }
        System.exit(0);
    }

    static PrintStream open(Path file) throws Exception {
        return new PrintStream(Files.newOutputStream(file), true, StandardCharsets.UTF_8);
    }

    static void write(PrintStream out, ChangeEvent<String, String> record) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", record.destination());
        put(line, "key", record.key());
        put(line, "value", record.value());
        try {
            out.println(JSON.writeValueAsString(line));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Put a text under its name, and the number of its schema under NAME_schema, if it has one. */
    static void put(Map<String, Object> line, String name, String text) {
        String begin = "{\"schema\":";
        if (text != null && text.startsWith(begin)) {
            int end = endOfValue(text, begin.length());
            line.put(name + "_schema", number(text.substring(begin.length(), end)));
            text = text.substring(end + ",\"payload\":".length(), text.length() - 1);
        }
        line.put(name, text);
    }

    static synchronized int number(String schema) {
        Integer known = SCHEMAS.get(schema);
        if (known == null) {
            known = SCHEMAS.size();
            SCHEMAS.put(schema, known);
            schemas.println(schema);
        }
        return known;
    }

    /** Return the offset after the JSON value, an object or null, that begins at an offset. */
    static int endOfValue(String text, int at) {
        if (text.charAt(at) != '{') {
            return at + 4;
        }
        int depth = 0;
        boolean quoted = false;
        while (true) {
            char each = text.charAt(at++);
            if (each == '\\') {
                at++;
            } else if (each == '"') {
                quoted = !quoted;
            } else if (!quoted && each == '{') {
                depth++;
            } else if (!quoted && each == '}' && --depth == 0) {
                return at;
            }
        }
    }
}
