/**
 * What a suite requires that is not installed with the project, installed before its tests begin: Vitest runs this once for
 * each project, in its main process. Each step has a bound of its own and prints what it installs; it does nothing for what
 * is there. Where something cannot be had, the tests that need it tell why, and skip or fail.
 */

import { existsSync } from "node:fs";
import type { Requirement } from "../../../scripts/test/suites.ts";
import { isVitestSuite, SUITES } from "../../../scripts/test/suites.ts";
import { compileCurator } from "../curator/contender-process.ts";
import { canInstall, installPackages } from "../debian-packages.ts";
import { installBetterSqlite3, installInterop, installPrisma } from "../interop.ts";
import { installRuntimes } from "../runtimes.ts";
import { installMariaDb, mariaDbUnavailableReason } from "../stores/mariadb.ts";
import { installPgBouncer, pgBouncerUnavailableReason } from "../stores/pgbouncer.ts";
import { installPostgres, postgresUnavailableReason } from "../stores/postgres.ts";
import { installRedis, redisUnavailableReason } from "../stores/redis.ts";
import { installZooKeeper } from "../stores/zookeeper.ts";

const INSTALLERS: Readonly<Record<Requirement, () => unknown>> = {
  redis: () => redisUnavailableReason() === null && installRedis(),
  postgres: () => postgresUnavailableReason() === null && installPostgres(),
  pgbouncer: () => pgBouncerUnavailableReason() === null && installPgBouncer(),
  mariadb: () => mariaDbUnavailableReason() === null && installMariaDb(),
  zookeeper: installZooKeeper,
  curator: compileCurator,
  runtimes: installRuntimes,
  bindfs: installBindfs,
  "query-builders": () => installInterop(""),
  "better-sqlite3": installBetterSqlite3,
  prisma: installPrisma,
  frameworks: () => installInterop("frameworks"),
  opentelemetry: () => installInterop("opentelemetry"),
  pino: () => installInterop("pino"),
  bundlers: () => installInterop("bundlers"),
  jest: () => installInterop("jest"),
  next: () => process.env.HOLDFAST_LONG === "1" && installInterop("next"),
};

/** Where it cannot be had, or there is no FUSE, its test tells why. */
function installBindfs(): void {
  if (existsSync("/dev/fuse") && !existsSync("/usr/bin/bindfs") && canInstall())
    installPackages(["bindfs"], "the tests of files on FUSE");
}

/** Vitest calls it. @param project that is about to be tested */
export async function setup({ name }: { readonly name: string }): Promise<void> {
  const suite = SUITES.filter(isVitestSuite).find((vitestSuite) => vitestSuite.name === name);
  for (const requirement of suite?.requires ?? []) await INSTALLERS[requirement]();
}
