// Each kind of damage to the state directory after a kill, while a live client holds the key: no other client is granted it.

import { cpSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import type { ServeOptions } from "../../../src/server/server.ts";
import type { Claim, Driver } from "../../../src/spi/driver.ts";
import { until } from "../../../src/testing/until.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { toReleases } from "../../support/releases.ts";
import type { OpenDriver } from "../../support/server-fixture.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  expectHeld,
  makeClaim,
  openClient,
  startServer,
} from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

interface CrashedServer {
  readonly dir: string;
  readonly claim: Claim;
  readonly holder: OpenDriver;
  /** Another client, which reconnects by itself. */
  readonly otherClaim: Claim;
  readonly other: OpenDriver;
  readonly options: Partial<ServeOptions> & { readonly in: string };
  readonly address: string;
  /** The holder may connect again. */
  restore(): void;
}

/** A server was killed: its files are unchanged, and its client cannot reconnect yet. */
async function crashServer(transport: "unix" | "tcp", ttlMs: number): Promise<CrashedServer> {
  const dir = createTemporaryDirectory();
  const first = await startServer({ in: dir, ...(transport === "tcp" && { listen: "holdfast://127.0.0.1:0" }) });
  const address = first.addresses[0] as string;
  let restore = (): void => undefined;
  let gate = Promise.resolve();
  const holder = await openClient(address, { beforeConnect: () => gate });
  // so that there are lines before and after the holder's
  const other = await openClient(address);
  const claim = makeClaim("k", { ttlMs });
  const otherClaim = makeClaim("other");
  await other.driver.claim(otherClaim);
  expectHeld(await holder.driver.claim(claim));
  // a killed process leaves what it has written
  cpSync(join(dir, "state"), join(dir, "killed"), { recursive: true });
  gate = new Promise((resolve) => {
    restore = resolve;
  });
  await first.close();
  rmSync(join(dir, "state"), { recursive: true });
  cpSync(join(dir, "killed"), join(dir, "state"), { recursive: true });
  return { dir, claim, holder, otherClaim, other, address, restore, options: { in: dir, listen: address } };
}

/** Long enough for a server that trusts its files to look for its clients' processes, and to grant. */
const OBSERVATION_MS = 300;

/** Asks for the key again and again: is it ever granted to another client? */
async function wasEverGranted(driver: Driver): Promise<boolean> {
  const end = performance.now() + OBSERVATION_MS;
  do {
    if (await isGranted(driver)) return true;
    await delay(20);
  } while (performance.now() < end);
  return false;
}

/** Settles when the client holds its claim again. */
function holdsAgain({ driver }: OpenDriver, claim: Claim): Promise<unknown> {
  const isHeld = async (): Promise<boolean> => {
    try {
      return (await driver.renew([claim]))[0]?.state === "held";
    } catch (error) {
      // it is reconnecting
      if (/cannot be reached|connection/.test((error as Error).message)) return false;
      throw error;
    }
  };
  return until(isHeld, { within: 10_000, what: "the client to hold its claim again" });
}

async function isGranted(driver: Driver): Promise<boolean> {
  const claim = makeClaim("k", { wait: false });
  const { state } = await driver.claim(claim);
  if (state === "held") await driver.release(toReleases(claim));
  return state === "held";
}

type Damage = (path: string, text: string) => void;

/** Replaces the last one. */
const flipByte =
  (pattern: RegExp): Damage =>
  (path, text) => {
    const match = [...text.matchAll(pattern)].at(-1);
    if (match === undefined) throw new Error(`there is no ${pattern}`);
    const end = match.index + match[0].length - 1;
    const other = text[end] === "1" ? "2" : "1";
    writeFileSync(path, `${text.slice(0, end)}${other}${text.slice(end + 1)}`);
  };

const sessionsFile: readonly (readonly [string, Damage])[] = [
  ["cut at a line end", (path, text) => writeFileSync(path, text.slice(0, text.trimEnd().lastIndexOf("\n") + 1))],
  ["cut behind its header", (path, text) => writeFileSync(path, text.slice(0, text.indexOf("\n") + 1))],
  ["cut in a line", (path, text) => truncateSync(path, Buffer.byteLength(text) - 20)],
  ["empty", (path) => truncateSync(path)],
  ["missing", (path) => rmSync(path)],
  ["a digit of the pid flipped", flipByte(/"pid":\d/g)],
  ["a letter of the id flipped", flipByte(/"id":"[a-z2-7]/g)],
  ["the name of a field flipped", flipByte(/"pidS/g)],
  ["the count flipped", flipByte(/"lines":"\d+/g)],
  [
    "a line taken out of the middle",
    (path, text) => {
      const lines = text.split("\n");
      writeFileSync(path, [...lines.slice(0, 1), ...lines.slice(2)].join("\n"));
    },
  ],
];

for (const transport of ["unix", "tcp"] as const) {
  test.each(sessionsFile)(
    `sessions, ${transport}: %s: no other client is granted the holder's key`,
    async (_, damage) => {
      const crashedServer = await crashServer(transport, 30_000);
      const path = join(crashedServer.dir, "state", "sessions");
      damage(path, readFileSync(path, "utf8"));
      const server = await startServer(crashedServer.options);
      expect(server.recoveryRemainingMs).toBeGreaterThan(28_000);
      const newClient = await openClient(crashedServer.address);
      // all other clients have reconnected
      await holdsAgain(crashedServer.other, crashedServer.otherClaim);
      expect(await wasEverGranted(newClient.driver)).toBe(false);
      crashedServer.restore();
      await holdsAgain(crashedServer.holder, crashedServer.claim);
      expect(await isGranted(newClient.driver)).toBe(false);
    },
  );
}

test("an undamaged sessions file: the server grants again as soon as all clients have reconnected", async () => {
  const crashedServer = await crashServer("unix", 30_000);
  const server = await startServer(crashedServer.options);
  crashedServer.restore();
  await until(() => server.recoveryRemainingMs === 0, { within: 10_000, what: "the end of the recovery" });
  expect(await isGranted((await openClient(crashedServer.address)).driver)).toBe(false);
});

const journalFiles: readonly (readonly [string, Damage, RegExp])[] = [
  ["missing", (path) => rmSync(path), /journal is missing/],
  ["empty", (path) => truncateSync(path), /journal is damaged/],
  [
    "cut at a line end",
    (path, text) => writeFileSync(path, text.slice(0, text.trimEnd().lastIndexOf("\n") + 1)),
    /damaged/,
  ],
  ["cut in a line", (path, text) => truncateSync(path, Buffer.byteLength(text.trimEnd()) - 20), /damaged/],
  ["a digit flipped", flipByte(/"ttlMs":\d/g), /damaged/],
  ["its count flipped", flipByte(/"lines":"\d+/g), /damaged/],
];

test.each(journalFiles)(
  "journal: %s: refused with the remedy, and the files are not changed",
  async (_, damage, message) => {
    const crashedServer = await crashServer("tcp", 600_000);
    const path = join(crashedServer.dir, "state", "journal");
    damage(path, readFileSync(path, "utf8"));
    await expect(startServer(crashedServer.options)).rejects.toThrow(message);
    await expect(startServer(crashedServer.options)).rejects.toThrow(
      /when no lock is held that is detached.*, move it and "state" away/,
    );
    // the operator applied the remedy too early: a live client is still not forgotten
    rmSync(path, { force: true });
    rmSync(join(crashedServer.dir, "state", "state"));
    const server = await startServer(crashedServer.options);
    expect(server.recoveryRemainingMs).toBeGreaterThan(58_000);
    const newClient = await openClient(crashedServer.address);
    expect(await isGranted(newClient.driver)).toBe(false);
    crashedServer.restore();
    await holdsAgain(crashedServer.holder, crashedServer.claim);
  },
);

test("a journal of another start than the state's is refused", async () => {
  const server = await crashServer("unix", 600_000);
  const path = join(server.dir, "state", "journal");
  const old = readFileSync(path);
  await (await startServer(server.options)).close();
  await (await startServer(server.options)).close();
  writeFileSync(path, old);
  await expect(startServer(server.options)).rejects.toThrow(/journal does not belong to the state beside it/);
});

test("a journal that was replaced under a running server takes no claim that a restart would not find", async () => {
  const server = await startServer();
  const { driver } = await openClient(server.addresses[0] as string);
  const long = { ttlMs: 600_000 };
  expectHeld(await driver.claim(makeClaim("a", long)));
  rmSync(join(server.dir, "state", "journal"));
  await expect(driver.claim(makeClaim("b", long))).rejects.toThrow(/cannot write its state/);
  // it is rewritten completely
  await until(() => server.ready().ok, { within: 5_000, what: "the journal" });
  expectHeld(await driver.claim(makeClaim("c", long)));
  const keys = [...readFileSync(join(server.dir, "state", "journal"), "utf8").matchAll(/"key":"(.)"/g)].map(
    (match) => match[1],
  );
  expect(keys).toEqual(["a", "c"]);
});
