import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import software.amazon.event.ruler.Machine;

/** Reads {"patterns": [..], "events": [..]}, each a text; prints a line for each pattern: "refused", or a 0 or 1 for each event. */
public class Answers {
    public static void main(String[] args) throws Exception {
        JsonNode given = new ObjectMapper().readTree(System.in);
        for (JsonNode pattern : given.get("patterns")) {
            Machine machine = Machine.builder().build();
            StringBuilder line = new StringBuilder();
            try {
                machine.addRule("r", pattern.asText());
                for (JsonNode event : given.get("events")) {
                    line.append(machine.rulesForJSONEvent(event.asText()).isEmpty() ? '0' : '1');
                }
            } catch (Exception refused) {
                line = new StringBuilder("refused");
            }
            System.out.println(line);
        }
    }
}
