// A page that shows how its call goes. tests/e2e/browser.mjs serves it, with the built bundle as /ratewright.js.
import { withRetry } from "@ratewright/fetch";

const status = document.querySelector("#status");
const api = withRetry({
  on: (event) => {
    if (event.type === "waiting") status.textContent = `busy, next attempt in ${Math.ceil(event.waitMs / 1_000)} s`;
  },
});

export async function load(url) {
  const response = await api(url);
  const { attempts, retryAt } = api.summary(response);
  status.textContent = response.ok
    ? `${response.status} after ${attempts} attempts`
    : `limited; try again at ${retryAt?.toLocaleTimeString() ?? "a later time"}`;
}

const url = new URLSearchParams(location.search).get("api");
if (url) window.loaded = load(url);
