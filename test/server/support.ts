// Servers and clients for the tests of the server.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import type { ServerOptions } from "../../src/drivers/server/driver.ts";
import { server as serverDriver } from "../../src/drivers/server/driver.ts";
import { newId } from "../../src/ids.ts";
import type { Log, ServeOptions, Server } from "../../src/server/serve.ts";
import { serve } from "../../src/server/serve.ts";
import type { Answer, Claim, ClaimId, Driver, Hold } from "../../src/spi/driver.ts";
import { ALL_PERMITS } from "../../src/spi/driver.ts";
import { checkNoSecret } from "../support/canary.ts";
import { until } from "../support/wait-for.ts";

const undo: (() => void | Promise<void>)[] = [];

/** Undoes, after each test, what it opened: last first. */
export function cleanUp(): void {
  afterEach(async () => {
    for (const step of undo.splice(0).reverse()) await step();
  });
}

export function later(step: () => void | Promise<void>): void {
  undo.push(step);
}

/** A new folder of our own. */
export function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "holdfast-server-"));
  later(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A server; by default with a state of its own, on a Unix socket. What it logs is kept. */
export async function running(
  options: Partial<ServeOptions> & { readonly in?: string } = {},
): Promise<Server & { readonly logged: string[]; readonly path: string; readonly dir: string }> {
  const { in: dir = folder(), ...rest } = options;
  const logged: string[] = [];
  const path = join(dir, "socket");
  const log: Log = (message, error, details) => {
    const said = error === undefined ? message : `${message}: ${error}`;
    const more = (_: string, value: unknown): unknown => (typeof value === "bigint" ? String(value) : value);
    logged.push(details === undefined ? said : `${said} ${JSON.stringify(details, more)}`);
  };
  const whole = {
    listen: `unix:${path}`,
    log,
    ...(rest.driver === undefined && { state: join(dir, "state") }),
    ...rest,
  };
  later(() => checkNoSecret(logged.join("\n"), "the server's log"));
  const it = await serve(whole);
  let isClosed = false;
  // a test that closes it itself sees what came of that
  later(() => (isClosed ? undefined : it.close()));
  const end = it.close;
  const close = (): Promise<void> => {
    isClosed = true;
    return end();
  };
  return Object.assign(it, { close, logged, path, dir });
}

/** What a client was told by itself. */
interface Pushes {
  /** Ids with their answers; null: something may have been missed. */
  readonly all: { readonly id: ClaimId | null; readonly answer: Answer | undefined }[];
  /** The answer that was pushed for this claim. */
  granted(claim: Claim, within?: number): Promise<Extract<Answer, { state: "held" }>>;
}

export interface Opened {
  readonly driver: Driver;
  readonly pushes: Pushes;
}

/** An open driver to an address ("unix:/path", "tcp://127.0.0.1:port"). */
export async function client(address: string, more: ServerOptions = {}): Promise<Opened> {
  const driver = serverDriver({ ...target(address), ...more });
  const all: Pushes["all"] = [];
  await driver.open((id, answer) => all.push({ id, answer }));
  later(() => driver.close());
  const granted: Pushes["granted"] = async (claim, within = 8_000) => {
    const push = await until(() => all.find(({ id, answer }) => id === claim.id && answer?.state === "held"), {
      within,
      what: `the grant of ${claim.holds[0].key}`,
    });
    return push.answer as Extract<Answer, { state: "held" }>;
  };
  return { driver, pushes: { all, granted } };
}

function target(address: string): ServerOptions {
  if (address.startsWith("unix:")) return { path: address.slice(5) };
  const [, host, port] = /^tcp:\/\/(.*):(\d+)$/.exec(address) as unknown as [string, string, string];
  return { host, port: Number(port) };
}

/** A claim as the core would make it; exclusive unless holds say otherwise. */
export function claimOf(keys: string | readonly (string | Hold)[], more: Partial<Omit<Claim, "holds">> = {}): Claim {
  const holds = (typeof keys === "string" ? [keys] : keys).map((key) =>
    typeof key === "string" ? { key, permits: ALL_PERMITS, limit: ALL_PERMITS } : key,
  );
  return {
    id: newId(),
    holds: holds as unknown as Claim["holds"],
    ttlMs: 30_000,
    tokens: 1,
    floor: 0n,
    wait: true,
    label: "",
    ...more,
  };
}

export const held = (answer: Answer | undefined): Extract<Answer, { state: "held" }> => {
  if (answer?.state !== "held") throw new Error(`expected held, not ${answer?.state}`);
  return answer;
};
