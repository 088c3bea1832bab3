/** Our own server over HTTP, as a program in another language uses it: a request to acquire, and one to release. */

import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import type { LockImplementation } from "../harness/closed-loop.ts";

interface Held {
  readonly reference: string;
  readonly token: string;
}

export async function openHttp(socket: string): Promise<LockImplementation<Held>> {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  const { hostname: host, port } = new URL(readFileSync(`${socket}.http`, "utf8"));

  function post(path: string, body: object): Promise<Held> {
    const text = JSON.stringify(body);
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(text) };
    return new Promise((resolve, reject) => {
      const sent = request({ host, port, agent, path, method: "POST", headers }, (answer) => {
        let received = "";
        answer.setEncoding("utf8").on("data", (chunk: string) => {
          received += chunk;
        });
        answer.once("end", () => resolve(JSON.parse(received) as Held));
      });
      sent.once("error", reject);
      sent.end(text);
    });
  }

  return {
    acquire: (key) => post("/v1/claims", { key, wait: "20s" }),
    release: ({ reference }) => post("/v1/claims/release", { reference }),
    tokenOf: ({ token }) => BigInt(token),
    close: async () => agent.destroy(),
  };
}
