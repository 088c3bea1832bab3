// Servers and clients for the tests of the server.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import type { ServerOptions } from "../../src/drivers/server/driver.ts";
import { lockServer } from "../../src/drivers/server/driver.ts";
import type { Logger, ServeOptions, Server } from "../../src/server/server.ts";
import { serve } from "../../src/server/server.ts";
import type { Answer, Claim, ClaimId, Driver, LockSpec, Traits } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { until } from "../../src/testing/until.ts";
import { randomId } from "../../src/util/ids.ts";
import { toDriverEvents } from "./driver-events.ts";
import { expectNoSecret } from "./secret-scan.ts";

const cleanups: (() => void | Promise<void>)[] = [];

/** Undoes, after each test, what it opened: last first. */
export function cleanUpAfterEach(): void {
  afterEach(async () => {
    for (const step of cleanups.splice(0).reverse()) await step();
  });
}

export function onCleanup(step: () => void | Promise<void>): void {
  cleanups.push(step);
}

/** A new folder of our own. */
export function createTemporaryDirectory(): string {
  const path = mkdtempSync(join(tmpdir(), "holdfast-server-"));
  onCleanup(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A server; by default with a state of its own, on a Unix socket. What it logs is kept. */
export async function startServer(
  options: Partial<ServeOptions> & { readonly in?: string } = {},
): Promise<Server & { readonly logged: string[]; readonly path: string; readonly dir: string }> {
  const { in: dir = createTemporaryDirectory(), ...rest } = options;
  const logged: string[] = [];
  const path = join(dir, "socket");
  const log: Logger = (message, error, details) => {
    const text = error === undefined ? message : `${message}: ${error}`;
    const toJsonValue = (_: string, value: unknown): unknown => (typeof value === "bigint" ? String(value) : value);
    logged.push(details === undefined ? text : `${text} ${JSON.stringify(details, toJsonValue)}`);
  };
  const serveOptions = {
    listen: `holdfast+unix:${path}`,
    log,
    state: join(dir, "state"),
    ...rest,
  };
  onCleanup(() => expectNoSecret(logged.join("\n"), "the server's log"));
  const server = await serve(serveOptions);
  let isClosed = false;
  // a test that closes it itself sees what came of that
  onCleanup(() => (isClosed ? undefined : server.close()));
  const closeServer = server.close;
  const close = (): Promise<void> => {
    isClosed = true;
    return closeServer();
  };
  return Object.assign(server, { close, logged, path, dir });
}

/** What a client was told by itself. */
interface PushRecorder {
  /** Ids with their answers; null: something may have been missed. */
  readonly all: { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
  /** The answer that was pushed for this claim. */
  waitForGrant(claim: Claim, within?: number): Promise<Extract<Answer, { state: "held" }>>;
}

export interface OpenDriver {
  readonly driver: Driver;
  readonly traits: Traits;
  readonly pushes: PushRecorder;
}

/** An open driver to an address ("holdfast+unix:/path", "holdfast://127.0.0.1:port"). */
export async function openClient(address: string, options: ServerOptions = {}): Promise<OpenDriver> {
  const driver = lockServer({ ...parseTarget(address), ...options });
  const all: PushRecorder["all"] = [];
  const traits = await driver.open(toDriverEvents((id, answer) => all.push({ id, answer })));
  onCleanup(() => driver.close());
  const waitForGrant: PushRecorder["waitForGrant"] = async (claim, timeoutMs = 8_000) => {
    const push = await until(() => all.find(({ id, answer }) => id === claim.id && answer?.state === "held"), {
      within: timeoutMs,
      what: `the grant of ${claim.locks[0].key}`,
    });
    return push.answer as Extract<Answer, { state: "held" }>;
  };
  return { driver, traits, pushes: { all, waitForGrant } };
}

function parseTarget(address: string): ServerOptions {
  if (address.startsWith("holdfast+unix:")) return { path: address.slice("holdfast+unix:".length) };
  const [, host, port] = /^holdfast:\/\/(.*):(\d+)$/.exec(address) as unknown as [string, string, string];
  return { host, port: Number(port) };
}

/** A claim as the core would make it; exclusive unless holds say otherwise. */
export function makeClaim(
  keys: string | readonly (string | LockSpec)[],
  overrides: Partial<Omit<Claim, "locks">> = {},
): Claim {
  const lockSpecs = (typeof keys === "string" ? [keys] : keys).map((key) =>
    typeof key === "string" ? { key, permits: ALL_PERMITS, limit: ALL_PERMITS } : key,
  );
  return {
    id: randomId(),
    locks: lockSpecs as unknown as Claim["locks"],
    ttlMs: 30_000,
    tokenCount: 1,
    floor: 0n,
    wait: true,
    label: "",
    ...overrides,
  };
}

export const expectHeld = (answer: Answer | undefined): Extract<Answer, { state: "held" }> => {
  if (answer?.state !== "held") throw new Error(`expected held, not ${answer?.state}`);
  return answer;
};
