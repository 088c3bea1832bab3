// The same through TLS and with credentials: a server that is killed under load, claims that outlive it and answer to
// their account alone, and secrets that stand in nobody's output.

import { writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import { newId } from "../../src/ids.ts";
import type { Right } from "../../src/server/access.ts";
import { newCredential } from "../../src/server/credentials.ts";
import { authority, writeCertificate } from "../support/certificates.ts";
import { RawClient } from "../support/raw-client.ts";
import { seededRandom } from "../support/seeded-random.ts";
import { allProceeded, loaded, longestStop, WITHIN_MS, WORKERS } from "./load.ts";
import { openRegister } from "./register.ts";
import type { Scene } from "./scene.ts";
import { LONG, test } from "./scene.ts";
import type { Mortal } from "./served-child.ts";
import { mortal } from "./served-child.ts";

const KILLS = LONG ? 20 : 3;
const MOST_BETWEEN_MS = LONG ? 2_000 : 600;
const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const ALL: readonly Right[] = ["acquire", "inspect", "force", "admin"];

const seed = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);

type Secured = { readonly server: Mortal; readonly ana: string; readonly ben: string };

/** A server with a certificate, and two who may do everything. */
async function secured(here: Scene): Promise<Secured> {
  const issuer = authority();
  const tls = writeCertificate(here.folder, issuer.issue(["127.0.0.1"]), issuer);
  const [ana, ben] = [newCredential(), newCredential()];
  const accounts = here.path("accounts.json");
  const account = (name: string, hash: string): object => ({
    name,
    hashes: [hash],
    rules: [{ prefix: "", rights: ALL }],
  });
  const file = { version: 1, accounts: [account("ana", ana.hash), account("ben", ben.hash)] };
  writeFileSync(accounts, JSON.stringify(file), { mode: 0o600 });
  return { server: await mortal(here, { tls, accounts }), ana: ana.credential, ben: ben.credential };
}

test(`through TLS, with credentials: the server killed ${KILLS} times under load from ${WORKERS} processes: no double grant, no token repeated, everybody proceeds; no secret is told (HOLDFAST_SEED=${seed})`, {
  timeout: KILLS * (MOST_BETWEEN_MS + 5_000) + 3 * WITHIN_MS,
}, async ({ here }) => {
  const random = seededRandom(seed);
  const { server, ana } = await secured(here);
  const register = await openRegister(here);
  const workers = await loaded(here, server.url, register, { HOLDFAST_CREDENTIAL: ana });
  for (let n = 0; n < KILLS; n++) {
    await delay(random.int(MOST_BETWEEN_MS));
    await server.kill();
    await server.restart();
  }
  await allProceeded(workers, register, process.hrtime.bigint());
  const told = [server.logged(), ...workers.map((one) => one.out() + one.err())].join("\n");
  expect(told).not.toContain(ana);
  console.log(
    `figure: server on TLS killed ${KILLS} times: ${register.log.length / 2} turns of ${WORKERS} clients, longest stop ${longestStop(register).toFixed(0)} ms`,
  );
});

test("through TLS: a detached claim and one of a day outlive kill -9, and answer to the account that placed them alone", async ({
  here,
}) => {
  const { server, ana, ben } = await secured(here);
  const [day, detached] = [newId(), newId()];
  const first = await RawClient.open(server.raw, { credential: ana });
  const granted = await first.claim(day, "day", DAY_MS);
  await first.claim(detached, "detached", MINUTE_MS);
  expect(await first.call("detach", [detached])).toEqual([1]);
  first.end();
  await server.kill();
  await server.restart();

  const other = await RawClient.open(server.raw, { credential: ben });
  await other.call("reclaim", [], true);
  const answer = (id: string): Promise<unknown> =>
    other.call("renew", [id]).then(String, ({ message }: Error) => message);
  expect(await answer(day), "as one that never was").toBe(await answer(newId()));
  expect(await answer(day)).not.toMatch(/^held/);
  const mine = await RawClient.open(server.raw, { credential: ana });
  expect(Number(mine.welcome.reclaimMs)).toBeLessThanOrEqual(MINUTE_MS);
  await mine.call("reclaim", [], true);
  const [one, two] = (await mine.call("renew", [day, detached])) as unknown as (readonly unknown[])[];
  expect([one?.[0], one?.[1], two?.[0]]).toEqual(["held", granted[1], "held"]);
  expect(await mine.call("release", [day, detached])).toEqual([1, 1]);
  for (const client of [other, mine]) client.end();
  for (const secret of [ana, ben, day, detached, first.session]) expect(server.logged()).not.toContain(secret);
});

test("wrong credentials by the hundred: those who work go on, and what was tried stands in no log", async ({
  here,
}) => {
  const { server, ana } = await secured(here);
  const register = await openRegister(here);
  const workers = await loaded(here, server.url, register, { HOLDFAST_CREDENTIAL: ana });
  const canary = newCredential().credential;
  for (let round = 0; round < 6; round++) {
    const tries = Array.from({ length: 20 }, () =>
      RawClient.open(server.raw, { credential: canary }).then(
        () => "in",
        (error: Error) => /"code":"(\w+)"/.exec(error.message)?.[1],
      ),
    );
    // after a hundred in a minute it is LIMIT, at once
    for (const answer of await Promise.all(tries)) expect(["AUTH", "LIMIT"]).toContain(answer);
  }
  await allProceeded(workers, register, process.hrtime.bigint());
  expect(server.logged()).not.toContain(canary);
  expect(server.logged()).not.toContain(ana);
});
