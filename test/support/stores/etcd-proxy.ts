// A proxy before etcd's JSON gateway that knows its calls: it holds, drops or counts those of one path.

import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import type { EtcdAddress } from "./etcd.ts";

/** What becomes of a call. drop: it is never answered; the server may see it, or not. */
type EtcdProxyRule = (path: string, body: string) => "pass" | "drop" | "answerNothing" | Promise<unknown>;

export type EtcdProxy = {
  readonly address: EtcdAddress;
  /** The paths of the calls so far. */
  readonly calls: string[];
  /** The bodies of the calls that the server has answered. */
  readonly answered: string[];
  /** How many streams have been opened. */
  readonly streamCount: number;
  rule: EtcdProxyRule;
  /** Nothing passes on the open streams any more. */
  muteStreams(): void;
  [Symbol.asyncDispose](): Promise<void>;
};

export async function startEtcdProxy(targets: readonly EtcdAddress[]): Promise<EtcdProxy> {
  let next = 0;
  const streams = new Set<() => void>();
  const pickTarget = (): EtcdAddress => targets[next++ % targets.length] as EtcdAddress;
  const calls: string[] = [];
  const answered: string[] = [];

  function send(incoming: IncomingMessage): ReturnType<typeof request> {
    const { method, url: path, headers } = incoming;
    return request({ ...pickTarget(), method, path, headers, agent: false });
  }

  function carryStream(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const forwarded = send(incoming);
    let isMuted = false;
    streams.add(() => {
      isMuted = true;
    });
    forwarded.on("error", () => outgoing.destroy());
    forwarded.on("response", (response) => {
      outgoing.writeHead(response.statusCode ?? 500, response.headers);
      outgoing.flushHeaders();
      response.on("data", (chunk) => isMuted || outgoing.write(chunk));
      response.on("close", () => isMuted || outgoing.end());
    });
    forwarded.flushHeaders();
    incoming.on("data", (chunk) => isMuted || forwarded.write(chunk));
    incoming.on("error", () => forwarded.destroy());
    outgoing.on("close", () => forwarded.destroy());
  }

  async function carryCall(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const path = incoming.url ?? "";
    let body = "";
    for await (const chunk of incoming.setEncoding("utf8")) body += chunk;
    calls.push(path);
    const verdict = proxy.rule(path, body);
    if (verdict === "drop") return;
    if (typeof verdict === "object") await verdict;
    const forwarded = send(incoming);
    forwarded.on("error", () => outgoing.destroy());
    forwarded.on("response", (response) => {
      answered.push(body);
      if (verdict === "answerNothing") return void response.resume();
      outgoing.writeHead(response.statusCode ?? 500, response.headers);
      response.pipe(outgoing);
    });
    forwarded.end(body);
  }

  const server = createServer((incoming, outgoing) => {
    outgoing.on("error", () => undefined);
    if (incoming.url === "/v3/watch" && proxy.rule("/v3/watch", "") === "pass") carryStream(incoming, outgoing);
    else carryCall(incoming, outgoing).catch(() => outgoing.destroy());
  });
  await new Promise<void>((resolve) => void server.listen(0, "127.0.0.1", resolve));
  const proxy: EtcdProxy = {
    address: { host: "127.0.0.1", port: (server.address() as AddressInfo).port },
    calls,
    answered,
    get streamCount() {
      return streams.size;
    },
    rule: () => "pass",
    muteStreams: () => {
      for (const mute of streams) mute();
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => void server.close(resolve));
    },
  };
  return proxy;
}
