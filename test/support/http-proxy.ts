/** A proxy in front of a service of HTTP that answers in its place, or loses its replies. */

import { once } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";

export interface HttpProxy {
  readonly endpoint: string;
  /** How many requests have come, by their method and, of DynamoDB, operation. */
  readonly counts: ReadonlyMap<string, number>;
  /** The next request is answered so, and goes no further. */
  answerNext(status: number, body: string): void;
  /** The next request is carried out, but its connection ends without the reply. */
  loseNextReply(): void;
  close(): Promise<void>;
}

export async function httpProxy(target: string): Promise<HttpProxy> {
  const counts = new Map<string, number>();
  const faults: ((incoming: IncomingMessage, outgoing: ServerResponse) => Promise<void>)[] = [];

  async function forward(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const { status, headers, body } = await send(target, incoming);
    outgoing.writeHead(status, headers).end(body);
  }

  const server = createServer((incoming, outgoing) => {
    const name = String(incoming.headers["x-amz-target"] ?? incoming.method).replace(/^.*\./, "");
    counts.set(name, (counts.get(name) ?? 0) + 1);
    const handle = faults.shift() ?? forward;
    handle(incoming, outgoing).catch(() => outgoing.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    counts,
    answerNext(status, body) {
      faults.push(async (incoming, outgoing) => {
        incoming.resume();
        await once(incoming, "end");
        outgoing.writeHead(status).end(body);
      });
    },
    loseNextReply() {
      faults.push(async (incoming, outgoing) => {
        await send(target, incoming);
        outgoing.destroy();
      });
    },
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

interface Reply {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}

async function send(target: string, incoming: IncomingMessage): Promise<Reply> {
  const { method, headers, url = "/" } = incoming;
  const forwarded = request(target + url, { ...(method !== undefined && { method }), headers });
  incoming.pipe(forwarded);
  const [reply] = (await once(forwarded, "response")) as [IncomingMessage];
  const chunks: Buffer[] = [];
  for await (const chunk of reply) chunks.push(chunk as Buffer);
  return { status: reply.statusCode ?? 0, headers: reply.headers, body: Buffer.concat(chunks) };
}
