/**
 * A process that does not call close() ends soon when it neither holds nor waits for a lock, whatever its store does. One that
 * waits lives on.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { expect, test, vi } from "vitest";
import { until } from "../../src/testing/until.ts";
import { freePort } from "../../src/torture/processes/free-port.ts";
import { builtFile } from "../support/built-file.ts";
import { PROGRAM, sandboxEnvironment } from "../support/cli-sandbox.ts";
import type { StoreKind } from "../support/stores/document-servers.ts";
import { startDocumentServer, urlOf } from "../support/stores/document-servers.ts";
import { AWS_ENVIRONMENT } from "../support/stores/document-stores.ts";
import { startEtcd } from "../support/stores/etcd.ts";
import { startMariaDb } from "../support/stores/mariadb.ts";
import { startPostgres } from "../support/stores/postgres.ts";
import { startRedis } from "../support/stores/redis.ts";
import { startRedisCluster } from "../support/stores/redis-cluster.ts";
import { startRedisSentinels } from "../support/stores/redis-sentinel.ts";
import { startZooKeeper } from "../support/stores/zookeeper.ts";

// two stores at a time: most of the time a process is waited for, but all of their programs start at once
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000, maxConcurrency: 2 });

/** After this time a process must have ended. A client library may have a timer of its own for as long as that. */
const EXIT_MS = 2_000;

const built = (path: string): string => JSON.stringify(pathToFileURL(builtFile(path)).href);

/** The expressions of a program that create its locks. */
const CLIENTS = {
  // three processes create the tables of a database at once
  url: (url: string) => `connect(${JSON.stringify(url)}, { ...OPTIONS, connectTimeout: "30s" })`,
  ioredis: (url: string) =>
    `createLocks((await import(${built("dist/drivers/redis/driver.js")})).redis(async () => new (await import("ioredis")).Redis(${JSON.stringify(url)})), OPTIONS)`,
  nodeRedis: (url: string, library = "redis") =>
    `createLocks((await import(${built("dist/drivers/redis/driver.js")})).redis(async () => (await import("${library}")).createClient({ url: ${JSON.stringify(url)} })), OPTIONS)`,
  /** By a url, in a process that no longer finds the library which is preferred. */
  without: (library: string, url: string) =>
    `(hidePackage("${library}"), connect(${JSON.stringify(url)}, { ...OPTIONS, connectTimeout: "30s" }))`,
  quorum: (url: string) =>
    `createLocks((await import(${built("dist/drivers/quorum/driver.js")})).quorum(await Promise.all([1, 2, 3].map(async (index) => (await import(${built("dist/drivers/redis/driver.js")})).redis(async () => new (await import("ioredis")).Redis(${JSON.stringify(url)}), { prefix: "q" + index })))), OPTIONS)`,
};

const STATES = ["healthy", "stopped", "killed"] as const;

/** What it does with them before it has nothing left to do, and (lastActs) at that moment. */
const USES = [
  "",
  `await (await locks.acquire("k" + process.pid)).release();`,
  `await (await locks.acquire("cached" + process.pid, { cache: "1h" })).release();`,
  // one release that no code waits for, and one that the program awaits: it must not end with "unsettled top-level await"
  `const held = [await locks.acquire(crypto.randomUUID()), await locks.acquire(crypto.randomUUID())];
   lastActs.push(() => { void held[0].release(); return held[1].release(); });`,
];

interface Store {
  readonly url: string;
  stop(): void;
  kill(): Promise<unknown>;
  dispose(): Promise<unknown>;
}

interface Subject {
  readonly name: string;
  create(url: string): string;
  /** Default: true. */
  readonly canCache?: false;
}

async function startDocumentStore(kind: StoreKind): Promise<Store> {
  const server = await startDocumentServer(kind);
  const url = urlOf(await server.create());
  return { url, stop: () => server.signal("SIGSTOP"), kill: server.crash, dispose: server.dispose };
}

const ofUrl: Subject = { name: "url", create: CLIENTS.url };

const STORES: readonly {
  readonly name: string;
  start(): Promise<Store>;
  readonly subjects: readonly Subject[];
  /** Default: all. */
  readonly states?: readonly (typeof STATES)[number][];
}[] = [
  {
    name: "Redis",
    async start() {
      const server = await startRedis();
      const stop = (): void => server.signal("SIGSTOP");
      const kill = async (): Promise<void> => server.signal("SIGKILL");
      return { url: server.url, stop, kill, dispose: () => server.stop().catch(() => undefined) };
    },
    subjects: [
      ofUrl,
      { name: "ioredis", create: CLIENTS.ioredis },
      { name: "node-redis", create: CLIENTS.nodeRedis },
      { name: "node-redis 5", create: (url) => CLIENTS.nodeRedis(url, "redis5") },
      { name: "quorum", create: CLIENTS.quorum },
    ],
  },
  {
    name: "Redis Cluster",
    async start() {
      const cluster = await startRedisCluster(3);
      const signal = (name: NodeJS.Signals): void => {
        for (const node of cluster.ports.keys()) cluster.signal(node, name);
      };
      return {
        url: `redis+cluster://127.0.0.1:${cluster.ports[0]}`,
        stop: () => signal("SIGSTOP"),
        kill: async () => signal("SIGKILL"),
        dispose: () => cluster.stop().catch(() => undefined),
      };
    },
    subjects: [ofUrl],
  },
  {
    name: "Redis with Sentinels",
    async start() {
      const sentinels = await startRedisSentinels(60_000);
      const signal = (name: NodeJS.Signals): void => {
        for (const server of [0, 1]) sentinels.signal(server, name);
      };
      const hosts = sentinels.sentinels.map(({ host, port }) => `${host}:${port}`);
      return {
        url: `redis+sentinel://${hosts.join(",")}/${sentinels.name}`,
        stop: () => signal("SIGSTOP"),
        kill: async () => signal("SIGKILL"),
        dispose: () => sentinels.stop().catch(() => undefined),
      };
    },
    subjects: [ofUrl],
  },
  ...(["unix", "tcp"] as const).map((kind) => ({
    name: `the lock server (${kind})`,
    async start() {
      const folder = mkdtempSync(join(tmpdir(), "hf-exit-"));
      const listen = kind === "unix" ? `holdfast+unix:${folder}/socket` : `holdfast://127.0.0.1:${await freePort()}`;
      const child = spawn(process.execPath, [PROGRAM, "serve", "--listen", listen, "--state", `${folder}/state`], {
        stdio: ["ignore", "pipe", "ignore"],
        env: sandboxEnvironment(folder),
      });
      let out = "";
      child.stdout.setEncoding("utf8").on("data", (text: string) => {
        out += text;
      });
      await until(() => out.includes("listening"), { within: 20_000, what: "the server" });
      const kill = async (): Promise<void> => {
        if (child.exitCode === null && child.signalCode === null) {
          child.kill("SIGKILL");
          await once(child, "exit");
        }
      };
      return {
        url: listen,
        stop: () => void child.kill("SIGSTOP"),
        kill,
        async dispose() {
          await kill();
          rmSync(folder, { recursive: true });
        },
      };
    },
    subjects: [ofUrl],
  })),
  {
    name: "PostgreSQL",
    async start() {
      const server = await startPostgres();
      const dispose = (): Promise<unknown> => server.dispose().catch(() => undefined);
      return { url: server.url, stop: () => server.signal("SIGSTOP"), kill: () => server.crash(), dispose };
    },
    subjects: [
      { name: "pg", create: CLIENTS.url },
      { name: "pg, with recalls", create: (url) => CLIENTS.url(`${url}?recall=true`) },
      {
        name: "advisory locks",
        create: (url) => CLIENTS.url(url.replace(/^postgres(ql)?:/, "postgres+advisory:")),
        canCache: false,
      },
      // the last: the library is hidden from all that follow
      { name: "postgres.js", create: (url) => CLIENTS.without("pg", url) },
    ],
  },
  {
    name: "MariaDB",
    async start() {
      const server = await startMariaDb();
      const dispose = (): Promise<unknown> => server.dispose().catch(() => undefined);
      return { url: server.url, stop: () => server.signal("SIGSTOP"), kill: () => server.crash(), dispose };
    },
    subjects: [
      { name: "mysql2", create: CLIENTS.url },
      {
        name: "advisory locks",
        create: (url) => CLIENTS.url(url.replace(/^(mysql|mariadb):/, "$1+advisory:")),
        canCache: false,
      },
      { name: "mariadb", create: (url) => CLIENTS.without("mysql2", url) },
    ],
  },
  {
    name: "ZooKeeper",
    async start() {
      const server = await startZooKeeper();
      return {
        url: `zookeeper://127.0.0.1:${server.address.port}`,
        stop: () => void process.kill(server.pid, "SIGSTOP"),
        kill: () => server.stop("SIGKILL"),
        dispose: () => server.stop("SIGKILL"),
      };
    },
    subjects: [ofUrl],
  },
  {
    name: "etcd",
    async start() {
      const server = await startEtcd();
      const { host, port } = server.address;
      return {
        url: `etcd://${host}:${port}`,
        stop: () => server.signal("SIGSTOP"),
        kill: () => server.stop("SIGKILL"),
        dispose: () => server[Symbol.asyncDispose](),
      };
    },
    subjects: [ofUrl],
  },
  {
    name: "NATS",
    start: () => startDocumentStore("nats"),
    subjects: [ofUrl],
    // timers of the library, which cannot be reached, keep it alive while calls have no answer: until its leases have ended
    states: ["healthy", "killed"],
  },
  { name: "DynamoDB", start: () => startDocumentStore("dynamodb"), subjects: [ofUrl] },
  { name: "S3", start: () => startDocumentStore("s3"), subjects: [ofUrl] },
];

/** For imports to come. */
const HIDE_PACKAGE = `
  function hidePackage(name) {
    const error = \`Object.assign(new Error("Cannot find package '\${name}'"), { code: "ERR_MODULE_NOT_FOUND" })\`;
    const hook = \`export async function resolve(specifier, context, next) {
      if (specifier === "\${name}") throw \${error};
      return next(specifier, context);
    }\`;
    register("data:text/javascript," + encodeURIComponent(hook));
  }`;

/** A program that does this, says so, and has nothing left to do when its standard input ends. */
class Program {
  readonly #child: ReturnType<typeof spawn>;
  #out = "";
  #err = "";

  constructor(clients: readonly { readonly create: string; readonly use: string }[]) {
    const text = `
      import { register } from "node:module";
      import { connect, createLocks } from ${built("dist/index.js")};
      const OPTIONS = { ttl: "10s", wait: "1h" };
      const lastActs = [];
      ${HIDE_PACKAGE}
      process.on("warning", () => undefined);
      ${clients.map(({ create, use }) => `{ const locks = await ${create}; ${use} }`).join("\n")}
      console.log("ready");
      await new Promise((resolve) => process.stdin.resume().on("end", resolve));
      const endedAt = performance.now();
      process.on("exit", (code) => console.log(code === 0 ? "took" : "code " + code, Math.round(performance.now() - endedAt)));
      await Promise.all(lastActs.map((act) => act()));
    `;
    const args = ["--no-warnings", "--input-type=module", "-e", text];
    this.#child = spawn(process.execPath, args, {
      cwd: fileURLToPath(new URL("../..", import.meta.url)),
      env: { ...process.env, ...AWS_ENVIRONMENT },
      stdio: "pipe",
    });
    this.#child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      this.#out += chunk;
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
      this.#err += chunk;
    });
  }

  async ready(): Promise<void> {
    await until(() => this.#out.includes("ready") || this.hasEnded, { within: 60_000, what: "the program" });
    if (this.hasEnded) throw new Error(`the program has ended: ${this.#err}`);
  }

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  /** Gives it nothing to do any more. Returns how long it lived on by its own clock, in milliseconds; null: too long. */
  async measureExit(): Promise<number | null> {
    this.#child.stdin?.end();
    const closed = once(this.#child, "close");
    const timeout = setTimeout(() => this.kill(), 5 * EXIT_MS);
    await closed;
    clearTimeout(timeout);
    expect(this.#err).toBe("");
    const took = /took (\d+)/.exec(this.#out)?.[1];
    return took === undefined ? null : Number(took);
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

test.concurrent.for(STORES)(
  "$name: a process without a holder and a waiter ends, whatever the store does",
  async ({ start, subjects, states = STATES }) => {
    const store = await start();
    // a process for each state: it has a client of each kind, for each use
    const clients = subjects.flatMap(({ create, canCache = true }) =>
      USES.filter((use) => canCache || !use.includes("cache:")).map((use) => ({ create: create(store.url), use })),
    );
    const programs = states.map(() => new Program(clients));
    const exits: Partial<Record<(typeof STATES)[number], number | null>> = {};
    try {
      for (const program of programs) await program.ready();
      for (const [index, state] of states.entries()) {
        if (state === "stopped") store.stop();
        if (state === "killed") await store.kill();
        // their connections are broken, and they try to connect again; or a call for an idle lock is not answered
        if (state !== "healthy") await new Promise((resolve) => setTimeout(resolve, 1_000));
        exits[state] = await (programs[index] as Program).measureExit();
      }
      expect(Object.entries(exits).filter(([, ms]) => ms === null || ms > EXIT_MS)).toEqual([]);
    } finally {
      for (const program of programs) program.kill();
      await store.dispose();
    }
  },
);
