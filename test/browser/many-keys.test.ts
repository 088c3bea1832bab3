// The dashboard in a real Chromium, over a store with 100,000 keys.

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/index.ts";
import { chromiumUnavailableReason, launchChromium } from "../support/browser.ts";
import { openDashboard, openSite, STORES } from "../support/dashboard-site.ts";
import { cleanUpAfterEach, onCleanup } from "../support/server-fixture.ts";

cleanUpAfterEach();

const noBrowser = chromiumUnavailableReason();
let browser: Browser;
beforeAll(async () => {
  if (noBrowser === null) browser = await launchChromium();
});
afterAll(() => browser?.close());

const KEYS = 100_000;
const BATCH = 500;
const [redis] = STORES;

/** Watches how long the page shows no new frame. */
const WATCH_FRAMES = `window.longestFrameMs = 0;
let last = performance.now();
const onFrame = () => {
  const now = performance.now();
  window.longestFrameMs = Math.max(window.longestFrameMs, now - last);
  last = now;
  requestAnimationFrame(onFrame);
};
requestAnimationFrame(onFrame);`;

const reason = noBrowser ?? redis.reason;
describe.skipIf(reason !== null)(`in Chromium${reason === null ? "" : `: ${reason}`}`, () => {
  test("of 100,000 keys 2,000 are loaded, and only the rows in the window have elements", async () => {
    const site = await openSite(redis.open);
    const locks = await connect(site.store.url, { label: "bulk" });
    onCleanup(() => locks.close());
    const held = [];
    for (let start = 0; start < KEYS; start += BATCH) {
      const keys = Array.from({ length: BATCH }, (_, index) => `tenant/${start + index}/sync`);
      held.push(...(await Promise.all(keys.map((key) => locks.acquire(key, { ttl: "10m" })))));
    }
    const startedAt = performance.now();
    const page = await openDashboard(browser, site);
    await page.getByText("2,000 keys").first().waitFor({ timeout: 60_000 });
    const rowsMs = performance.now() - startedAt;
    await page.evaluate(WATCH_FRAMES);
    expect(await page.getByText(/the store has more/).count()).toBeGreaterThan(0);
    for (let turn = 0; turn < 40; turn++) {
      await page.mouse.wheel(0, 2_000);
      expect(await page.locator("tr").count()).toBeLessThan(100);
    }
    await page.keyboard.press("/");
    await page.keyboard.type("tenant/1000");
    await page
      .getByText(/^[\d,]+ of 2,000 keys$/)
      .first()
      .waitFor({ timeout: 60_000 });
    const [paintMs, longestFrameMs, heapBytes] = (await page.evaluate(`[
      performance.getEntriesByName("first-contentful-paint")[0].startTime,
      window.longestFrameMs,
      performance.memory.usedJSHeapSize,
    ]`)) as [number, number, number];
    expect(heapBytes).toBeLessThan(100e6);
    console.log(
      `figure: dashboard with ${KEYS} keys on redis: first paint ${Math.round(paintMs)} ms, rows after ${Math.round(rowsMs)} ms, longest frame ${Math.round(longestFrameMs)} ms, heap ${Math.round(heapBytes / 1e6)} MB`,
    );
    expect(held).toHaveLength(KEYS);
  }, 180_000);
});
