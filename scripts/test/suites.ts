// The suites of `npm test`, in the order they run. vitest.config.ts reads it too.

import { existsSync } from "node:fs";
import { listFiles } from "../list-files.ts";

export type Suite = {
  readonly name: string;
  /** It needs this store; STORES ("redis,postgres") names those that are wanted, and then only such suites run. */
  readonly store?: string;
} & (VitestSuite | ProgramSuite);

/** What is installed before the tests begin: test/support/setup/requirements.ts says how. */
export type Requirement =
  | "redis"
  | "postgres"
  | "pgbouncer"
  | "mariadb"
  | "zookeeper"
  | "etcd"
  | "etcd-client"
  | "curator"
  | "nats"
  | "dynalite"
  | "s3"
  | "runtimes"
  | "bindfs"
  | "tmux"
  | "chromium"
  | "query-builders"
  | "better-sqlite3"
  | "prisma"
  | "frameworks"
  | "opentelemetry"
  | "pino"
  | "bundlers"
  | "jest"
  | "next";

export type VitestSuite = {
  /** Beginnings of paths: a folder ("test/unit/") or files ("test/conformance/memory."). */
  readonly tests: readonly string[];
  readonly excludes?: readonly string[];
  readonly requires?: readonly Requirement[];
  readonly hasCoverage?: true;
  /** Compiled, not run: files named *.test-d.ts. */
  readonly isTypesOnly?: true;
};

/** A program that prints the closing line itself. */
type ProgramSuite = {
  readonly source: string;
  readonly args: readonly string[];
  readonly longArgs: readonly string[];
};

/** Of one test: a busy machine makes a few seconds many. */
export const TEST_TIMEOUT_MS: number = process.env.HOLDFAST_LONG === "1" ? 180_000 : 20_000;

const MEMORY = "test/conformance/memory.";
const DOCUMENT_TESTS = ["test/conformance/document-store.", "test/conformance/document-recipe."];
const STORES = ["redis", "zookeeper", "etcd", "postgres", "mariadb"] as const;
const DOCUMENT_STORE_PROGRAMS = ["nats", "dynalite", "s3"] as const;
const SQL_STORES = ["postgres", "mysql", "sqlite"] as const;

export const SUITES: readonly Suite[] = [
  { name: "unit", tests: ["test/unit/", MEMORY], hasCoverage: true },
  { name: "types", tests: ["test/types/"], isTypesOnly: true },
  {
    name: "conformance",
    tests: ["test/conformance/"],
    excludes: [
      MEMORY,
      "test/conformance/redis",
      "test/conformance/quorum",
      "test/conformance/zookeeper",
      "test/conformance/etcd",
      ...DOCUMENT_TESTS,
      "test/conformance/nats",
      "test/conformance/dynamodb",
      "test/conformance/s3",
      ...SQL_STORES.map((store) => `test/conformance/${store}`),
    ],
  },
  {
    name: "redis",
    store: "redis",
    tests: [
      "test/integration/redis/",
      "test/integration/quorum/",
      "test/simulation/quorum/",
      "test/conformance/redis",
      "test/conformance/quorum",
    ],
    requires: ["redis"],
  },
  {
    name: "docs",
    tests: ["test/docs/"],
    requires: ["runtimes", "opentelemetry", "pino"],
  },
  {
    name: "bundlers",
    tests: ["test/bundlers/"],
    requires: ["redis", "bundlers", "jest", "next"],
  },
  {
    name: "server",
    tests: ["test/integration/server/", "test/fuzz/server", "test/fuzz/storage"],
  },
  { name: "http", tests: ["test/integration/http/", "test/fuzz/http"] },
  { name: "browser", tests: ["test/browser/"], requires: ["redis", "postgres", "chromium"] },
  { name: "frameworks", tests: ["test/frameworks/"], requires: ["frameworks", "redis"] },
  {
    name: "zookeeper",
    store: "zookeeper",
    tests: ["test/integration/zookeeper/", "test/conformance/zookeeper"],
    requires: ["zookeeper", "curator"],
  },
  {
    name: "etcd",
    store: "etcd",
    tests: ["test/integration/etcd/", "test/conformance/etcd"],
    requires: ["etcd", "etcd-client"],
  },
  {
    name: "document",
    store: "document",
    tests: ["test/simulation/document/", ...DOCUMENT_TESTS],
  },
  sqlSuite("postgres", ["postgres", "pgbouncer", "query-builders", "prisma"]),
  sqlSuite("mysql", ["mariadb", "query-builders", "prisma"]),
  sqlSuite("sqlite", ["bindfs", "query-builders", "better-sqlite3"]),
  {
    name: "nats",
    store: "nats",
    tests: ["test/integration/nats/", "test/conformance/nats"],
    requires: ["nats"],
  },
  {
    name: "dynamodb",
    store: "dynamodb",
    tests: ["test/integration/dynamodb/", "test/conformance/dynamodb"],
    requires: ["dynalite"],
  },
  {
    name: "s3",
    store: "s3",
    tests: ["test/integration/s3/", "test/conformance/s3"],
    requires: ["s3"],
  },
  { name: "cli", tests: ["test/integration/cli/"], requires: ["redis", "tmux"] },
  {
    name: "simulation",
    source: "test/simulation/main.ts",
    args: ["--seeds", "500"],
    longArgs: ["--seeds", "20000"],
  },
  {
    name: "fault-injection",
    tests: ["test/fault-injection/"],
    excludes: ["test/fault-injection/nemesis/"],
    requires: ["bindfs", ...DOCUMENT_STORE_PROGRAMS],
  },
  { name: "leader", tests: ["test/leader/"], requires: [...STORES, ...DOCUMENT_STORE_PROGRAMS] },
  { name: "nemesis", tests: ["test/fault-injection/nemesis/"], requires: ["redis"] },
  { name: "torture", tests: ["test/torture/"], requires: [...STORES] },
];

function sqlSuite(store: (typeof SQL_STORES)[number], requires: readonly Requirement[]): Suite {
  return {
    name: store,
    store,
    tests: [`test/integration/${store}/`, `test/conformance/${store}`],
    requires,
  };
}

export function isVitestSuite(suite: Suite): suite is Suite & VitestSuite {
  return "tests" in suite;
}

/** Suites whose tests have been written, of the stores that are wanted. */
export function selectSuites(stores: string | undefined = process.env.STORES): Suite[] {
  const files = listTestFiles();
  const wanted = stores === undefined || stores === "" ? null : stores.split(",");
  const suites = SUITES.filter(({ store }) => wanted === null || (store !== undefined && wanted.includes(store)));
  return suites.filter((suite) =>
    isVitestSuite(suite) ? files.some((file) => includesFile(suite, file)) : existsSync(suite.source),
  );
}

export function suitesOf(file: string): string[] {
  return SUITES.filter((suite) => isVitestSuite(suite) && includesFile(suite, file)).map(({ name }) => name);
}

/** What Vitest is told to include and exclude. */
export function toGlobs(prefixes: readonly string[]): string[] {
  return prefixes.map((prefix) => (prefix.endsWith("/") ? `${prefix}**/*.test.ts` : `${prefix}*test.ts`));
}

export function listTestFiles(): string[] {
  return listFiles("test").filter((name) => name.endsWith(".test.ts") || name.endsWith(".test-d.ts"));
}

function includesFile(suite: VitestSuite, file: string): boolean {
  const startsWith = (prefix: string): boolean => file.startsWith(prefix);
  return suite.tests.some(startsWith) && !(suite.excludes ?? []).some(startsWith);
}
