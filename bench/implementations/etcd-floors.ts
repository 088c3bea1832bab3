/** What a lock on etcd takes at least, over the JSON gateway, as Holdfast uses it: requests by Node's own HTTP. */

import { randomUUID } from "node:crypto";
import { Agent, request } from "node:http";
import { createInterface } from "node:readline";
import { parsePort } from "../harness/address.ts";
import type { LockImplementation } from "../harness/closed-loop.ts";

const TTL_S = 30;
const KEEP_ALIVE_MS = 10_000;

/** For a key without other callers: it does not wait. */
export async function openBarePair(address: string): Promise<LockImplementation<string>> {
  const gateway = openGateway(address);
  const lease = await gateway.grant();
  return {
    async acquire(name) {
      const key = encode(name);
      const { succeeded } = await gateway.call("/v3/kv/txn", {
        compare: [{ key, target: "CREATE", create_revision: "0" }],
        success: [{ request_put: { key, lease } }],
      });
      if (succeeded !== true) throw new Error("the floor's key was taken");
      return key;
    },
    release: (key) => gateway.call("/v3/kv/txn", { success: [{ request_delete_range: { key } }] }),
    close: async () => gateway.close(),
  };
}

/** Keys that two processes hand over: the event of a release is the grant of the one that waits. For two callers. */
export async function openEventFloor(address: string): Promise<LockImplementation<string>> {
  const gateway = openGateway(address);
  const lease = await gateway.grant();
  const sender = encode(randomUUID());
  let grant: (() => void) | null = null;
  // a release that a waiter is there for writes its sender
  await gateway.watch((value) => {
    if (value !== undefined && value !== sender) grant?.();
  });
  return {
    async acquire(name) {
      const [key, waiting] = [encode(`handed/${name}`), encode(`waiting/${name}`)];
      const granted = new Promise<void>((resolve) => {
        grant = resolve;
      });
      const { succeeded } = await gateway.call("/v3/kv/txn", {
        compare: [{ key, target: "CREATE", create_revision: "0" }],
        success: [{ request_put: { key, lease } }],
        failure: [{ request_put: { key: waiting, lease } }],
      });
      if (succeeded !== true) await granted;
      grant = null;
      return name;
    },
    release: (name) => {
      const [key, waiting] = [encode(`handed/${name}`), encode(`waiting/${name}`)];
      return gateway.call("/v3/kv/txn", {
        compare: [{ key: waiting, target: "CREATE", result: "GREATER", create_revision: "0" }],
        success: [{ request_put: { key, value: sender, lease } }, { request_delete_range: { key: waiting } }],
        failure: [{ request_delete_range: { key } }],
      });
    },
    close: async () => gateway.close(),
  };
}

interface Answer {
  readonly ID?: string;
  readonly succeeded?: boolean;
}

interface WatchLine {
  readonly result?: {
    readonly created?: boolean;
    readonly events?: readonly { readonly kv: { readonly value?: string } }[];
  };
}

interface Gateway {
  call(path: string, body: object): Promise<Answer>;
  /** A lease that is kept alive until the gateway is closed. */
  grant(): Promise<string>;
  /** Watches keys that are handed over. */
  watch(onValue: (value: string | undefined) => void): Promise<void>;
  close(): void;
}

function openGateway(address: string): Gateway {
  const agent = new Agent({ keepAlive: true });
  const target = { host: "127.0.0.1", port: Number(parsePort(address)), method: "POST" } as const;
  const timers: NodeJS.Timeout[] = [];
  const call = (path: string, body: object): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const outgoing = request({ ...target, agent, path }, (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("error", reject);
        response.on("end", () => resolve(JSON.parse(Buffer.concat(chunks).toString()) as Answer));
      });
      outgoing.on("error", reject);
      outgoing.end(JSON.stringify(body));
    });
  return {
    call,
    async grant() {
      const { ID = "" } = await call("/v3/lease/grant", { TTL: TTL_S });
      timers.push(setInterval(() => void call("/v3/lease/keepalive", { ID }), KEEP_ALIVE_MS));
      return ID;
    },
    watch: (onValue) =>
      new Promise((resolve, reject) => {
        const outgoing = request({ ...target, agent: false, path: "/v3/watch" }, (response) => {
          createInterface({ input: response }).on("line", (line) => {
            const { result } = JSON.parse(line) as WatchLine;
            if (result?.created === true) resolve();
            for (const { kv } of result?.events ?? []) onValue(kv.value);
          });
        });
        outgoing.on("error", reject);
        const range = { key: encode("handed/"), range_end: encode("handed0") };
        outgoing.write(`${JSON.stringify({ create_request: range })}\n`);
      }),
    close() {
      for (const timer of timers) clearInterval(timer);
      agent.destroy();
    },
  };
}

function encode(text: string): string {
  return Buffer.from(text).toString("base64");
}
