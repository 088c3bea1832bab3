// `npm run pictures`: the pictures of the dashboard in README.md and in the guide, of a lock server with locks that are held
// and awaited. It needs Chromium.

import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import type { Browser, Page } from "playwright-core";
import { chromium } from "playwright-core";

const FOLDER = "docs/pictures";
const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/google-chrome"];
const SIZE = { width: 1_120, height: 640 };
/** How long the charts grow before they are taken. */
const CHART_MS = 40_000;

interface Picture {
  readonly name: string;
  readonly path: string;
  /** Taken when this text is there. */
  readonly text: RegExp;
}

const PICTURES: readonly Picture[] = [
  { name: "dashboard-keys", path: "/ui", text: /invoice:1041/ },
  { name: "dashboard-key", path: "/ui/k/invoice%3A1041", text: /Queue/ },
  { name: "dashboard-events", path: "/ui/events", text: /granted/ },
  { name: "dashboard-now", path: "/ui/now", text: /How long claims waited/ },
];

/** What the pictures need of the library, which is loaded from dist. */
interface Client {
  acquire(key: string, options?: object): Promise<unknown>;
  using(key: string, options: object, run: () => Promise<void>): Promise<void>;
  semaphore(key: string, options: object): { acquire(options?: object): Promise<unknown> };
  close(): Promise<void>;
}

const directory = mkdtempSync(join(tmpdir(), "holdfast-pictures-"));
process.env.HOLDFAST_DIR = directory;
const { connect } = (await import(pathToFileURL("dist/index.js").href)) as {
  readonly connect: (url: undefined, options: object) => Promise<Client>;
};
let isOver = false;

/** Holders and waiters as a shop has them. */
async function createLoad(): Promise<readonly Client[]> {
  const labels = ["api@web-1 pid 4121", "api@web-2 pid 3377", "worker@batch-1 pid 918", "cron@batch-2 pid 2204"];
  const clients = await Promise.all(labels.map((label) => connect(undefined, { label })));
  const [web, other, worker, cron] = clients as [Client, Client, Client, Client];
  const ignore = (): undefined => undefined;
  await web.acquire("invoice:1041");
  for (const client of [other, worker, cron]) client.acquire("invoice:1041", { wait: "10m" }).catch(ignore);
  await cron.acquire("report:nightly", { ttl: "2m" });
  await worker.acquire("migration:schema", { ttl: "60s" });
  for (const tenant of ["acme", "globex", "initech", "umbrella", "wayne"]) await worker.acquire(`sync:${tenant}`);
  const busy = async (client: Client, key: string, workMs: number): Promise<void> => {
    while (!isOver) {
      await client.using(key, { wait: "1m" }, () => delay(workMs * (0.5 + Math.random()))).catch(ignore);
      await delay(40 * Math.random());
    }
  };
  for (const client of clients) for (const key of ["stock:42", "cart:77"]) void busy(client, key, 150);
  void busy(web, "order:9001", 900);
  void busy(other, "order:9001", 700);
  return clients;
}

async function startDashboard(): Promise<{ readonly child: ChildProcess; readonly link: string }> {
  const args = ["dist/cli/main.js", "dashboard", "--json", "--http", "127.0.0.1:0"];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  return { child, link: (JSON.parse(String(line)) as { readonly link: string }).link };
}

async function openSession(browser: Browser, link: string): Promise<Page> {
  const context = await browser.newContext({ viewport: SIZE, deviceScaleFactor: 1.5 });
  const page = await context.newPage();
  await page.goto(link);
  await page.getByText("invoice:1041").first().waitFor();
  return page;
}

async function takePictures(page: Page): Promise<void> {
  const base = new URL(page.url()).origin;
  for (const { name, path, text } of PICTURES) {
    await page.goto(`${base}${path}`);
    await page.getByText(text).first().waitFor();
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      // charts are drawn again, and bars move
      await delay(1_500);
      const file = join(FOLDER, `${name}-${colorScheme}.png`);
      await page.screenshot({ path: file });
      console.log(file);
    }
  }
}

const executablePath = PROGRAMS.find((program) => existsSync(program));
if (executablePath === undefined) throw new Error("install chromium");
const clients = await createLoad();
const { child, link } = await startDashboard();
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await openSession(browser, link);
await delay(CHART_MS);
await takePictures(page);
isOver = true;
await browser.close();
child.kill("SIGTERM");
for (const client of clients) await client.close();
rmSync(directory, { recursive: true, force: true });
