// Run a server that limits, then: API_URL=http://127.0.0.1:8080/ node examples/node.mjs
import { DeadlineError, withRetry } from "@ratewright/fetch";

const api = withRetry(fetch, {
  on: (event) => {
    if (event.type === "waiting") console.log(`waiting ${Math.round(event.waitMs)} ms: ${event.cause}`);
  },
});

try {
  const response = await api(process.env.API_URL ?? "http://127.0.0.1:8080/");
  const { attempts, retryAt } = api.summary(response);
  if (response.status === 429) console.log(`limited; try again at ${retryAt?.toLocaleTimeString() ?? "a later time"}`);
  else console.log(`${response.status} after ${attempts} attempts: ${await response.text()}`);
} catch (error) {
  if (!(error instanceof DeadlineError)) throw error;
  console.log(error.message);
}
