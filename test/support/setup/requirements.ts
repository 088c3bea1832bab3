/**
 * What a suite requires that is not installed with the project, installed before its tests begin: Vitest runs this once for
 * each project, in its main process. Each step has a bound of its own and prints what it installs; it does nothing for what
 * is there. Where something cannot be had, the tests that need it tell why, and skip or fail.
 */

import { existsSync } from "node:fs";
import type { Requirement } from "../../../scripts/test/suites.ts";
import { isVitestSuite, SUITES } from "../../../scripts/test/suites.ts";
import { chromiumUnavailableReason, installChromium } from "../browser.ts";
import { compileCurator } from "../curator/contender-process.ts";
import { canInstall, installPackages } from "../debian-packages.ts";
import { compileEtcdContender } from "../etcd-client/contender-process.ts";
import { installBetterSqlite3, installInterop, installInteropFolders, installPrisma } from "../interop.ts";
import { installRuntimes } from "../runtimes.ts";
import { etcdUnavailableReason, installEtcd } from "../stores/etcd.ts";
import { installMariaDb, mariaDbUnavailableReason } from "../stores/mariadb.ts";
import { installNats } from "../stores/nats.ts";
import { installPgBouncer, pgBouncerUnavailableReason } from "../stores/pgbouncer.ts";
import { installPostgres, postgresUnavailableReason } from "../stores/postgres.ts";
import { installRedis, redisUnavailableReason } from "../stores/redis.ts";
import { installS3 } from "../stores/s3-server.ts";
import { installZooKeeper } from "../stores/zookeeper.ts";
import { installTmux, tmuxUnavailableReason } from "../tmux.ts";

/** Folders below test/interop with packages of npm. */
const INTEROP_FOLDERS = {
  "query-builders": "",
  "better-sqlite3": "better-sqlite3",
  frameworks: "frameworks",
  opentelemetry: "opentelemetry",
  pino: "pino",
  bundlers: "bundlers",
  jest: "jest",
  dynalite: "dynalite",
} as const;

const INSTALLERS: Readonly<Record<Requirement, () => unknown>> = {
  redis: () => redisUnavailableReason() === null && installRedis(),
  postgres: () => postgresUnavailableReason() === null && installPostgres(),
  pgbouncer: () => pgBouncerUnavailableReason() === null && installPgBouncer(),
  mariadb: () => mariaDbUnavailableReason() === null && installMariaDb(),
  zookeeper: installZooKeeper,
  etcd: () => etcdUnavailableReason() === null && installEtcd(),
  "etcd-client": compileEtcdContender,
  curator: compileCurator,
  nats: installNats,
  dynalite: () => installInterop(INTEROP_FOLDERS.dynalite),
  s3: installS3,
  runtimes: installRuntimes,
  bindfs: installBindfs,
  chromium: () => chromiumUnavailableReason() === null && installChromium(),
  tmux: () => tmuxUnavailableReason() === null && installTmux(),
  "query-builders": () => installInterop(INTEROP_FOLDERS["query-builders"]),
  "better-sqlite3": installBetterSqlite3,
  prisma: installPrisma,
  frameworks: () => installInterop(INTEROP_FOLDERS.frameworks),
  opentelemetry: () => installInterop(INTEROP_FOLDERS.opentelemetry),
  pino: () => installInterop(INTEROP_FOLDERS.pino),
  bundlers: () => installInterop(INTEROP_FOLDERS.bundlers),
  jest: () => installInterop(INTEROP_FOLDERS.jest),
  next: () => process.env.HOLDFAST_LONG === "1" && installInterop("next"),
};

/** Where it cannot be had, or there is no FUSE, its test tells why. */
function installBindfs(): void {
  if (existsSync("/dev/fuse") && !existsSync("/usr/bin/bindfs") && canInstall())
    installPackages(["bindfs"], "the tests of files on FUSE");
}

/** Vitest calls it. @param project that is about to be tested */
export async function setup({ name }: { readonly name: string }): Promise<void> {
  for (const requirement of requirementsOf([name])) await INSTALLERS[requirement]();
}

/** Installs packages of npm that these suites require, all at once. What fails here is tried again by setup(), which reports it. */
export async function installFoldersOf(names: readonly string[]): Promise<void> {
  const requirements = requirementsOf(names);
  const wanted = Object.entries(INTEROP_FOLDERS).filter(([name]) => requirements.has(name as Requirement));
  await installInteropFolders(wanted.map(([, folder]) => folder));
}

function requirementsOf(names: readonly string[]): Set<Requirement> {
  const suites = SUITES.filter(isVitestSuite).filter(({ name }) => names.includes(name));
  return new Set(suites.flatMap(({ requires }) => requires ?? []));
}
