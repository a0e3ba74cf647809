// Sends REQUESTS calls at once to GATEWAY_URL + PATHNAME, where {n} is each call's number, through withRetry. Prints one line of JSON:
// the final statuses, the sends, the retries that came before the server's Retry-After, and the most sends of a call.
import { withRetry } from "../../dist/index.js";

const { GATEWAY_URL, REQUESTS = "100", PATHNAME = "/", DEADLINE_MS = "30000" } = process.env;
if (!GATEWAY_URL) {
  console.error("GATEWAY_URL is missing; set it to the URL of a server");
  process.exit(2);
}

const notBefore = new Map();
const counts = { statuses: {}, sends: 0, earlyRetries: 0, maxAttempts: 0 };

/** A fetch that notes for each call when the server wants it back, and whether it came too early. */
const counted = async (input, init) => {
  const place = init.headers.get("x-burst-place");
  counts.sends += 1;
  if (performance.now() < (notBefore.get(place) ?? 0)) counts.earlyRetries += 1;
  const response = await fetch(input, init);
  const retryAfter = Number(response.headers.get("retry-after"));
  // The response's head came a little earlier than we look at the clock, so this is later than the server meant.
  if (retryAfter > 0) notBefore.set(place, performance.now() + retryAfter * 1_000 - 50);
  return response;
};

const api = withRetry(counted, { deadlineMs: Number(DEADLINE_MS) });
await Promise.all(
  Array.from({ length: Number(REQUESTS) }, async (_, place) => {
    const headers = new Headers({ "x-burst-place": String(place) });
    const url = new URL(PATHNAME.replace("{n}", String(place)), GATEWAY_URL).href;
    const result = await api(url, { headers }).catch((error) => error);
    if (result instanceof Response) await result.arrayBuffer();
    const status = result instanceof Response ? result.status : result.name;
    counts.statuses[status] = (counts.statuses[status] ?? 0) + 1;
    counts.maxAttempts = Math.max(counts.maxAttempts, api.summary(result)?.attempts ?? 0);
  }),
);
console.log(JSON.stringify(counts));
