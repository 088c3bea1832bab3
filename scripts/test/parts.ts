// The parts of `npm test`, in the order they run, each with the seconds it may take. vitest.config.ts reads it too.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

export type Part = {
  readonly name: string;
  readonly seconds: number;
  readonly longSeconds: number;
  /** It needs this store; STORES ("redis,postgres") names those that are wanted, and then only such parts run. */
  readonly store?: string;
} & (VitestPart | ProgramPart);

export type VitestPart = {
  /** Beginnings of paths: a folder ("test/core/") or files ("test/drivers/memory."). */
  readonly tests: readonly string[];
  readonly except?: readonly string[];
  /** For tests with child processes and real time: another file at work would disturb them. */
  readonly oneAtATime?: true;
  readonly coverage?: true;
  /** Compiled, not run: files named *.test-d.ts. */
  readonly typesOnly?: true;
};

/** A program that prints the closing line itself. */
type ProgramPart = {
  readonly source: string;
  readonly args: readonly string[];
  readonly longArgs: readonly string[];
};

const MEMORY = "test/drivers/memory.";
const REDIS = "test/drivers/redis";

/** Where the systems we were asked to build are shown, a file each. */
const systems = (...names: readonly string[]): string[] => names.map((name) => `test/systems/${name}-`);

export const PARTS: readonly Part[] = [
  {
    name: "unit",
    tests: ["test/core/", "test/client/", "test/support/", "test/scripts/", MEMORY],
    coverage: true,
    seconds: 45,
    longSeconds: 600,
  },
  { name: "types", tests: ["test/types/"], typesOnly: true, seconds: 15, longSeconds: 15 },
  {
    name: "conformance",
    tests: ["test/drivers/", "test/conformance/"],
    except: [MEMORY, REDIS],
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
  { name: "cli", tests: ["test/cli/"], oneAtATime: true, seconds: 180, longSeconds: 300 },
  {
    name: "sim",
    source: "test/sim/main.ts",
    args: ["--seeds", "500"],
    longArgs: ["--seeds", "20000"],
    seconds: 40,
    longSeconds: 3600,
  },
  { name: "crash", tests: ["test/crash/"], oneAtATime: true, seconds: 150, longSeconds: 3600 },
  { name: "nemesis", tests: ["test/nemesis/"], oneAtATime: true, seconds: 90, longSeconds: 3600 },
];

/** Both compilations, before the first part. */
export const BUILD_SECONDS: number = 20;

/** All parts and the build together, not in a long run. */
export const TOTAL_SECONDS: number = 1_200;

export function isVitest(part: Part): part is Part & VitestPart {
  return "tests" in part;
}

/** Parts whose tests have been written, of the stores that are wanted. */
export function presentParts(stores: string | undefined = process.env.STORES): Part[] {
  const files = testFiles();
  const wanted = stores === undefined || stores === "" ? null : stores.split(",");
  const parts = PARTS.filter(({ store }) => wanted === null || (store !== undefined && wanted.includes(store)));
  return parts.filter((part) => (isVitest(part) ? files.some((file) => owns(part, file)) : existsSync(part.source)));
}

export function partsOf(file: string): string[] {
  return PARTS.filter((part) => isVitest(part) && owns(part, file)).map((part) => part.name);
}

/** What Vitest is told to include and exclude. */
export function globs(prefixes: readonly string[]): string[] {
  return prefixes.map((prefix) => (prefix.endsWith("/") ? `${prefix}**/*.test.ts` : `${prefix}*test.ts`));
}

export function testFiles(): string[] {
  return readdirSync("test", { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".test.ts") || name.endsWith(".test-d.ts"))
    .map((name) => join("test", name).replaceAll("\\", "/"))
    .filter((name) => !name.includes("node_modules"));
}

function owns(part: VitestPart, file: string): boolean {
  const startsWith = (prefix: string): boolean => file.startsWith(prefix);
  return part.tests.some(startsWith) && !(part.except ?? []).some(startsWith);
}
