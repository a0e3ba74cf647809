// CPU that withRetry adds to a call: a stub fetch through the wrapper, minus the stub alone, in interleaved rounds.
// The second line is with responses that name a limit. Exits with 1 if the median of what is added is 5 µs or more in
// either.
import { withRetry } from "../dist/index.js";

const calls = 20_000;
const rounds = 15;
const addedMaxUs = 5;

const url = "https://api.example/users/17/orders?page=2";
const limited = { RateLimit: '"default";r=42;t=3', "RateLimit-Policy": '"default";q=100;w=60' };

/** Microseconds of CPU for each call. */
async function measure(call) {
  const before = process.cpuUsage();
  for (let i = 0; i < calls; i++) await call(url, { method: "GET" });
  const { user, system } = process.cpuUsage(before);
  return (user + system) / calls;
}

function median(values) {
  return values.toSorted((a, b) => a - b)[values.length >> 1];
}

let failed = false;
for (const [name, headers] of [
  ["client-fetch", {}],
  ["client-fetch-ratelimit", limited],
]) {
  const response = new Response(null, { status: 204, headers });
  const stub = async () => response;
  const api = withRetry(stub);
  const [ours, peer, added] = [[], [], []];
  for (let round = -3; round < rounds; round++) {
    const own = await measure(api);
    const alone = await measure(stub);
    if (round < 0) continue; // warming up
    ours.push(own);
    peer.push(alone);
    added.push(own - alone);
  }
  const [o, p, a] = [ours, peer, added].map(median);
  console.log(
    `bench ${name} ours=${o.toFixed(2)}us peer=${p.toFixed(2)}us ratio=${(o / p).toFixed(1)} added=${a.toFixed(2)}us`,
  );
  failed ||= a >= addedMaxUs;
}
if (failed) process.exit(1);
