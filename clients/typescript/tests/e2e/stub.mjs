// A limiter on loopback for one test, with CORS: `denials` requests get 429, the others 200. `origin` is the one that it
// allows; only a named one may send credentials. The headers of each request but preflights are kept.
import { once } from "node:events";
import { createServer } from "node:http";

export async function startLimiter(test, { denials = 1, exposed = true, respond, origin = "*" } = {}) {
  const seen = { methods: [], headers: [], url: "" };
  let left = denials;
  const server = createServer((request, response) => {
    seen.methods.push(request.method);
    const cors = { "Access-Control-Allow-Origin": origin };
    if (origin !== "*") cors["Access-Control-Allow-Credentials"] = "true";
    if (exposed) cors["Access-Control-Expose-Headers"] = "Retry-After, RateLimit, RateLimit-Policy";
    if (request.method === "OPTIONS") {
      const allow = { "Access-Control-Allow-Headers": "X-Api-Client", "Access-Control-Max-Age": "600" };
      return response.writeHead(204, { ...cors, ...allow }).end();
    }
    seen.headers.push(request.headers);
    if (left-- > 0) {
      const limit = {
        "Retry-After": "1",
        RateLimit: '"page";r=0;t=1',
        "RateLimit-Policy": '"page";q=5;w=5',
      };
      return response.writeHead(429, { ...cors, ...limit }).end("slow down");
    }
    if (respond) return respond(request, response, cors);
    response.writeHead(200, { ...cors, RateLimit: '"page";r=4;t=1' }).end("content");
  }).listen(0, "127.0.0.1");
  test.after(() => {
    server.close();
    server.closeAllConnections();
  });
  await once(server, "listening");
  seen.url = `http://127.0.0.1:${server.address().port}/`;
  return seen;
}
