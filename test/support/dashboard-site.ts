/** A dashboard over a real store, in a real browser. */

import type { Browser, Locator, Page } from "playwright-core";
import { expect } from "vitest";
import { createDriver } from "../../src/client/driver-url.ts";
import type { Locks } from "../../src/index.ts";
import { connect } from "../../src/index.ts";
import { openTab } from "./browser.ts";
import type { TestGateway } from "./gateway-fixture.ts";
import { startGateway } from "./gateway-fixture.ts";
import { onCleanup, startServer } from "./server-fixture.ts";
import { postgresUnavailableReason, startPostgres } from "./stores/postgres.ts";
import { createPostgresFixture } from "./stores/postgres-fixture.ts";
import { redisUnavailableReason, startRedis } from "./stores/redis.ts";

/** What a test waits for appears much sooner, unless the machine is busy. */
export const WITHIN = { timeout: 20_000 };

export interface TestStore {
  readonly url: string;
  close(): Promise<void>;
}

async function openRedis(): Promise<TestStore> {
  const server = await startRedis();
  return { url: server.url, close: () => server.stop() };
}

async function openPostgres(): Promise<TestStore> {
  const server = await startPostgres();
  const fixture = await createPostgresFixture(server);
  return {
    url: fixture.database.url,
    async close() {
      await fixture.close();
      await server.stop();
    },
  };
}

async function openServer(): Promise<TestStore> {
  const { path } = await startServer();
  return { url: `holdfast+unix:${path}`, close: () => Promise.resolve() };
}

export const STORES = [
  { name: "redis", reason: redisUnavailableReason(), open: openRedis },
  { name: "postgres", reason: postgresUnavailableReason(), open: openPostgres },
  { name: "server", reason: null, open: openServer },
] as const;

export interface Site extends TestGateway {
  readonly store: TestStore;
  /** A client of the store, with this label. */
  openClient(label: string): Promise<Locks>;
}

export async function openSite(
  open: () => Promise<TestStore>,
  options: Partial<Parameters<typeof startGateway>[0]> = {},
): Promise<Site> {
  const store = await open();
  onCleanup(() => store.close());
  const gateway = await startGateway({
    driver: await createDriver(store.url),
    storeName: "the store",
    dashboard: { hasStartTokens: true },
    ...options,
  });
  return {
    ...gateway,
    store,
    async openClient(label) {
      const client = await connect(store.url, { label });
      onCleanup(() => client.close());
      return client;
    },
  };
}

/** Opens the link of the dashboard in a new tab, and waits for its first list. */
export async function openDashboard(browser: Browser, site: Site): Promise<Page> {
  const { page, faults } = await openTab(browser);
  onCleanup(async () => {
    await page.context().close();
    expect(faults).toEqual([]);
  });
  await page.goto(site.createLink());
  await page
    .getByText(/^\d[\d,]* keys?$|^No lock/)
    .first()
    .waitFor(WITHIN);
  return page;
}

/** Shows another view of the same session. */
export async function show(page: Page, site: Site, path: string, text: string | RegExp): Promise<void> {
  await page.goto(`${site.url}${path}`);
  await page.getByText(text).first().waitFor(WITHIN);
}

export const row = (page: Page, text: string | RegExp): Locator => page.getByRole("row").filter({ hasText: text });
