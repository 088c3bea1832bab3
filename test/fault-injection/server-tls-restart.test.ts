// The same with TLS and credentials: a server that is killed under load, claims that outlive it and work for their
// account only, and secrets that appear in no output.

import { writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { expect } from "vitest";
import type { Right } from "../../src/auth/access-control.ts";
import { createCredential } from "../../src/auth/accounts-file.ts";
import { randomId } from "../../src/util/ids.ts";
import { createAuthority, writeCertificate } from "../support/certificates.ts";
import { openFencedRegister } from "../support/processes/fenced-register.ts";
import {
  expectAllProceeded,
  longestGapMs,
  PROGRESS_TIMEOUT_MS,
  startWorkload,
  WORKER_COUNT,
} from "../support/processes/lock-workload.ts";
import type { ProcessHarness } from "../support/processes/process-harness.ts";
import { IS_LONG_RUN, test } from "../support/processes/process-harness.ts";
import type { ServerProcess } from "../support/processes/server-process.ts";
import { startServerProcess } from "../support/processes/server-process.ts";
import { RawClient } from "../support/raw-client.ts";
import { seededRandom } from "../support/seeded-random.ts";

const KILLS = IS_LONG_RUN ? 20 : 3;
const MAX_KILL_INTERVAL_MS = IS_LONG_RUN ? 2_000 : 600;
const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const ALL_RIGHTS: readonly Right[] = ["acquire", "inspect", "revoke", "admin"];

const seed = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000);

type SecuredServer = { readonly server: ServerProcess; readonly ana: string; readonly ben: string };

/** A server with a certificate, and two accounts with all rights. */
async function startSecuredServer(harness: ProcessHarness): Promise<SecuredServer> {
  const issuer = createAuthority();
  const tls = writeCertificate(harness.folder, issuer.issue(["127.0.0.1"]), issuer);
  const [ana, ben] = [createCredential(), createCredential()];
  const accounts = harness.path("accounts.json");
  const account = (name: string, hash: string): object => ({
    name,
    hashes: [hash],
    rules: [{ prefix: "", rights: ALL_RIGHTS }],
  });
  const file = { version: 1, accounts: [account("ana", ana.hash), account("ben", ben.hash)] };
  writeFileSync(accounts, JSON.stringify(file), { mode: 0o600 });
  return { server: await startServerProcess(harness, { tls, accounts }), ana: ana.credential, ben: ben.credential };
}

test(`with TLS and credentials, the server killed ${KILLS} times under load from ${WORKER_COUNT} processes: no double grant, no token repeated, all waiters proceed; no secret is printed (HOLDFAST_SEED=${seed})`, {
  timeout: KILLS * (MAX_KILL_INTERVAL_MS + 5_000) + 3 * PROGRESS_TIMEOUT_MS,
}, async ({ harness }) => {
  const random = seededRandom(seed);
  const { server, ana } = await startSecuredServer(harness);
  const register = await openFencedRegister(harness);
  const workers = await startWorkload(harness, server.url, register, { HOLDFAST_CREDENTIAL: ana });
  for (let n = 0; n < KILLS; n++) {
    await delay(random.int(MAX_KILL_INTERVAL_MS));
    await server.kill();
    await server.restart();
  }
  await expectAllProceeded(workers, register, process.hrtime.bigint());
  const output = [server.logged(), ...workers.map((worker) => worker.out() + worker.err())].join("\n");
  expect(output).not.toContain(ana);
  console.log(
    `figure: server on TLS killed ${KILLS} times: ${register.log.length / 2} turns of ${WORKER_COUNT} clients, longest stop ${longestGapMs(register).toFixed(0)} ms`,
  );
});

test("with TLS a detached claim and one with a lease of a day outlive kill -9, and work only for the account that placed them", async ({
  harness,
}) => {
  const { server, ana, ben } = await startSecuredServer(harness);
  const [day, detached] = [randomId(), randomId()];
  const first = await RawClient.open(server.rawAddress, { credential: ana });
  const granted = await first.claim(day, "day", DAY_MS);
  await first.claim(detached, "detached", MINUTE_MS);
  expect(await first.call("detach", [detached])).toEqual([1]);
  first.end();
  await server.kill();
  await server.restart();

  const otherRawClient = await RawClient.open(server.rawAddress, { credential: ben });
  await otherRawClient.call("reclaim", [], true);
  const answer = (id: string): Promise<unknown> =>
    otherRawClient.call("renew", [id]).then(String, ({ message }: Error) => message);
  expect(await answer(day), "as one that never was").toBe(await answer(randomId()));
  expect(await answer(day)).not.toMatch(/^held/);
  const ownRawClient = await RawClient.open(server.rawAddress, { credential: ana });
  expect(Number(ownRawClient.serverHello.recoveryRemainingMs)).toBeLessThanOrEqual(MINUTE_MS);
  await ownRawClient.call("reclaim", [], true);
  const [one, two] = (await ownRawClient.call("renew", [day, detached])) as unknown as (readonly unknown[])[];
  expect([one?.[0], one?.[1], two?.[0]]).toEqual(["held", granted[1], "held"]);
  expect(await ownRawClient.call("release", [day, detached])).toEqual([1, 1]);
  for (const client of [otherRawClient, ownRawClient]) client.end();
  for (const secret of [ana, ben, day, detached, first.session]) expect(server.logged()).not.toContain(secret);
});

test("with hundreds of wrong credentials existing clients continue, and no log contains an attempted credential", async ({
  harness,
}) => {
  const { server, ana } = await startSecuredServer(harness);
  const register = await openFencedRegister(harness);
  const workers = await startWorkload(harness, server.url, register, { HOLDFAST_CREDENTIAL: ana });
  const canary = createCredential().credential;
  for (let round = 0; round < 6; round++) {
    const attempts = Array.from({ length: 20 }, () =>
      RawClient.open(server.rawAddress, { credential: canary }).then(
        () => "in",
        (error: Error) => /"code":"(\w+)"/.exec(error.message)?.[1],
      ),
    );
    // after a hundred in a minute it is LIMIT, at once
    for (const answer of await Promise.all(attempts)) expect(["AUTH", "LIMIT"]).toContain(answer);
  }
  await expectAllProceeded(workers, register, process.hrtime.bigint());
  expect(server.logged()).not.toContain(canary);
  expect(server.logged()).not.toContain(ana);
});
