// Chromium without a window, as the tests start it. CHROMIUM names it; default: /usr/bin/chromium.
import { chromium } from "playwright-core";
import { environment } from "./environment.mjs";

export const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

/** Starts it with a profile of its own, and more arguments. It ends with this process at the latest: it reads from a pipe. */
export async function launchChromium(...args) {
  const launch = (chromiumSandbox) =>
    chromium.launch({
      executablePath: CHROMIUM,
      chromiumSandbox,
      args: ["--disable-gpu", "--disable-quic", "--no-proxy-server", ...args],
      env: environment(),
      timeout: 60_000,
    });
  if (process.getuid() === 0) return launch(false);
  return launch(true).catch((error) => {
    // Most containers allow no sandbox. Our pages are our own.
    if (/sandbox/i.test(error.message)) return launch(false);
    throw error;
  });
}
