// The parts of `npm test`, in the order they run, each with the seconds it may take. vitest.config.ts reads it too.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

export type Suite = {
  readonly name: string;
  readonly seconds: number;
  readonly longSeconds: number;
  /** It needs this store; STORES ("redis,postgres") names those that are wanted, and then only such parts run. */
  readonly store?: string;
} & (VitestSuite | ProgramSuite);

export type VitestSuite = {
  /** Beginnings of paths: a folder ("test/core/") or files ("test/conformance/memory."). */
  readonly tests: readonly string[];
  readonly excludes?: readonly string[];
  /** For tests with child processes and real time: another file at work would disturb them. */
  readonly isSequential?: true;
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

const MEMORY = "test/conformance/memory.";
const REDIS = "test/drivers/redis";

/** Where the systems we were asked to build are shown, a file each. */
const systems = (...names: readonly string[]): string[] => names.map((name) => `test/systems/${name}-`);

export const SUITES: readonly Suite[] = [
  {
    name: "unit",
    tests: ["test/core/", "test/client/", "test/support/", "test/scripts/", MEMORY],
    hasCoverage: true,
    seconds: 45,
    longSeconds: 600,
  },
  { name: "types", tests: ["test/types/"], isTypesOnly: true, seconds: 15, longSeconds: 15 },
  {
    name: "conformance",
    tests: ["test/drivers/", "test/conformance/"],
    excludes: [MEMORY, REDIS],
    seconds: 75,
    longSeconds: 1200,
  },
  {
    name: "redis",
    store: "redis",
    tests: [REDIS, "test/redis/", "test/quorum/", ...systems("s2b", "s2c", "s4")],
    seconds: 230,
    longSeconds: 9000,
  },
  { name: "examples", tests: ["test/examples/"], seconds: 45, longSeconds: 45 },
  { name: "server", tests: ["test/server/"], seconds: 90, longSeconds: 1200 },
  { name: "http", tests: ["test/http/"], seconds: 60, longSeconds: 3600 },
  {
    name: "zookeeper",
    store: "zookeeper",
    tests: ["test/zookeeper/", ...systems("s1", "s2e", "s2f", "s3")],
    seconds: 120,
    longSeconds: 1800,
  },
  { name: "cli", tests: ["test/cli/"], isSequential: true, seconds: 180, longSeconds: 300 },
  {
    name: "sim",
    source: "test/simulation/main.ts",
    args: ["--seeds", "500"],
    longArgs: ["--seeds", "20000"],
    seconds: 40,
    longSeconds: 3600,
  },
  { name: "crash", tests: ["test/crash/"], isSequential: true, seconds: 150, longSeconds: 3600 },
  { name: "nemesis", tests: ["test/nemesis/"], isSequential: true, seconds: 90, longSeconds: 3600 },
];

/** Both compilations, before the first part. */
export const BUILD_SECONDS: number = 20;

/** All parts and the build together, not in a long run. */
export const TOTAL_SECONDS: number = 1_200;

export function isVitestSuite(suite: Suite): suite is Suite & VitestSuite {
  return "tests" in suite;
}

/** Parts whose tests have been written, of the stores that are wanted. */
export function selectSuites(stores: string | undefined = process.env.STORES): Suite[] {
  const files = listTestFiles();
  const wanted = stores === undefined || stores === "" ? null : stores.split(",");
  const suites = SUITES.filter(({ store }) => wanted === null || (store !== undefined && wanted.includes(store)));
  return suites.filter((suite) =>
    isVitestSuite(suite) ? files.some((file) => includesFile(suite, file)) : existsSync(suite.source),
  );
}

export function suitesOf(file: string): string[] {
  return SUITES.filter((part) => isVitestSuite(part) && includesFile(part, file)).map((part) => part.name);
}

/** What Vitest is told to include and exclude. */
export function toGlobs(prefixes: readonly string[]): string[] {
  return prefixes.map((prefix) => (prefix.endsWith("/") ? `${prefix}**/*.test.ts` : `${prefix}*test.ts`));
}

export function listTestFiles(): string[] {
  return readdirSync("test", { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts") || name.endsWith(".test-d.ts"))
    .map((name) => join("test", name).replaceAll("\\", "/"))
    .filter((name) => !name.includes("node_modules"));
}

function includesFile(part: VitestSuite, file: string): boolean {
  const startsWith = (prefix: string): boolean => file.startsWith(prefix);
  return part.tests.some(startsWith) && !(part.excludes ?? []).some(startsWith);
}
