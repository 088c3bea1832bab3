/** The suites of drivers and of the client on a store with a conditional write: chosen tests of them, and in long runs all. */

import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createDocumentDriver } from "../../../src/drivers/document/driver.ts";
import { testDriver } from "../../client/suite.ts";
import { leakCheckedTest } from "../leak-checked-test.ts";
import { inspectDocuments } from "./document-inspector.ts";
import type { DocumentServer, StoreKind } from "./document-servers.ts";
import { startDocumentServer } from "./document-servers.ts";
import { AWS_ENVIRONMENT, createStore } from "./document-stores.ts";

/** What depends on the store: its conditional writes, its consistency, its watch, lost answers. The kernel has all tests of its own. */
const CHOSEN: readonly string[] = [
  "the driver's traits are as declared",
  "a free key is granted at once, and free again after its release",
  "a claim of a busy key waits, and is granted when the key is released",
  "wait: false on a busy key leaves no trace",
  "of many that come at once one is granted, and the others after it, one at a time",
  "a lease that is restarted by renew does not end",
  "claims are granted in the order of their arrival, across clients",
  "an expired holder is answered none, and its release false",
  "a waiting claim that is not renewed loses its entry, and the next moves up",
  "a claim that is sent twice at once has one entry",
  "a claim whose reply was lost is found by asking again, and is one claim",
  "readers share; a writer excludes readers and writers",
  "permits are counted, not holders",
  "a grant to a waiting claim has a higher token too",
  "tokens rise when every client has gone in between",
  "the queue of one key shows its holder and waiters, in order",
  "a detached claim outlives its client, and another one renews and releases it",
  "a revoked claim can be removed at once",
  "seed 1: no holders overlap, tokens rise, and nothing is left",
  "an idle lock is given to another client that wants it, and back",
];

const isLongRun = process.env.HOLDFAST_LONG === "1";
/** Leases of tests are shorter than those that users may have. */
const MIN_TTL_MS = 100;

export function documentConformance(kind: StoreKind, { canWatch }: { readonly canWatch: boolean }): void {
  let server: DocumentServer;
  beforeAll(async () => {
    for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
    server = await startDocumentServer(kind);
  }, 60_000);
  afterAll(async () => {
    await server.dispose();
    vi.unstubAllEnvs();
  });

  const found = new Set<string>();
  const register = leakCheckedTest(test);
  const choose: typeof register = Object.assign((testName: string, body: () => Promise<void>) => {
    found.add(testName);
    if (isLongRun || CHOSEN.includes(testName)) register(testName, body);
  }, register);
  // a topic without a chosen test would be a fault
  const group = isLongRun ? describe : (_: string, define: () => void): void => define();
  testDriver({ describe: group, test: choose }, kind, {
    async open() {
      const where = await server.create();
      const inspector = await inspectDocuments(where);
      return {
        driver: () =>
          createDocumentDriver(createStore(where), { documents: 2, pollMs: 50, callTimeoutMs: 5_000 }, MIN_TTL_MS),
        inspect: () => inspector.findViolations(),
        close: () => inspector.close(),
      };
    },
    traits: { lease: { claim: true, observed: true }, manyKeys: false, recall: canWatch ? "push" : "recheck" },
    verbs: ["detach", "revoke"],
    timeScale: 1,
    keys: 100,
    random: { seeds: isLongRun ? 3 : 1 },
  });

  test("each chosen test exists", () => {
    expect(CHOSEN.filter((one) => !found.has(one))).toEqual([]);
  });
}
