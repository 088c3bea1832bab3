/** The connections of an own client of the AWS SDK. */

import { once } from "node:events";
import type { Agent } from "node:http";
import { createServer, request } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { expect, test } from "vitest";
import { clientSettings } from "../../../../src/drivers/aws/client.ts";

test("a connection has no more listeners, however often it is used again", async () => {
  const server = createServer((_, outgoing) => outgoing.end()).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { requestHandler } = clientSettings({}) as { readonly requestHandler: { readonly httpAgent: Agent } };
  const { httpAgent: agent } = requestHandler;
  const { port } = server.address() as AddressInfo;

  async function use(): Promise<Socket> {
    const sent = request({ port, host: "127.0.0.1", agent }).end();
    const [[socket]] = await Promise.all([
      once(agent, "free"),
      once(sent, "response").then(([reply]) => once(reply.resume(), "end")),
    ]);
    return socket;
  }

  const socket = await use();
  const countListeners = (): unknown => socket.eventNames().map((name) => [name, socket.listenerCount(name)]);
  const before = countListeners();
  for (let count = 0; count < 12; count++) expect(await use()).toBe(socket);
  expect(countListeners()).toEqual(before);
  agent.destroy();
  server.close();
});
