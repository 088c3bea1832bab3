/** The socket side that both floors share: replies of one read go out in one line. */

import type { AddressInfo, Server } from "node:net";
import { createServer } from "node:net";
import type { ListenRequest } from "../harness/address.ts";
import { serveCalls } from "../harness/child-rpc.ts";
import { splitLines } from "../harness/line-splitter.ts";

export type Handle = (
  kind: "claim" | "release",
  number: number,
  key: string,
  id: number,
  reply: (number: number) => void,
) => void;

type Frame = ["claim" | "release", number, string, number];

export function serveBaseline(handle: Handle): void {
  const server = createServer({ noDelay: true }, (socket) => {
    let replies: string[] = [];
    const flush = (): void => {
      socket.write(`[${replies.join()}]\n`);
      replies = [];
    };
    const reply = (number: number): void => {
      if (replies.push(`[${number},"ok"]`) === 1) process.nextTick(flush);
    };
    socket.on(
      "data",
      splitLines((line) => {
        for (const [kind, number, key, id] of JSON.parse(line) as Frame[]) handle(kind, number, key, id, reply);
      }),
    );
    socket.on("error", () => socket.destroy());
  });
  answerListen(server);
}

/** Listens where the bench says. */
export function answerListen(server: Server): void {
  serveCalls({
    listen: ({ path, tcp }: ListenRequest) =>
      new Promise<string>((resolve) => {
        const listening = (): void => resolve(tcp ? `tcp:${(server.address() as AddressInfo).port}` : path);
        if (tcp) server.listen(0, "127.0.0.1", listening);
        else server.listen(path, listening);
      }),
  });
}
