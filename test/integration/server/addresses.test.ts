// What serve() returns and prints are urls that connect() takes, and serve() again.

import { join } from "node:path";
import { expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import { cleanUpAfterEach, createTemporaryDirectory, startServer } from "../../support/server-fixture.ts";

cleanUpAfterEach();

test("each address of a server is a url for clients, whatever characters its path has", async () => {
  const dir = createTemporaryDirectory();
  const issuer = createAuthority();
  const { cert, key, ca } = writeCertificate(dir, issuer.issue(["127.0.0.1"]), issuer);
  const path = join(dir, "50%41 of #1?");
  const listen = [
    `holdfast+unix:${encodeURIComponent(path).replaceAll("%2F", "/")}`,
    "holdfast://127.0.0.1:0",
    "holdfasts://127.0.0.1:0",
  ];
  const server = await startServer({ in: dir, listen, tls: { cert, key } });
  expect(server.addresses[0]).toBe(`holdfast+unix:${dir}/50%2541%20of%20%231%3F`);
  for (const address of server.addresses) {
    const url = address.startsWith("holdfasts:") ? `${address}?ca=${encodeURIComponent(ca)}` : address;
    await using locks = await connect(url);
    expect(await locks.tryAcquire("k")).not.toBeNull();
  }
  await server.close();
  const again = await startServer({ in: dir, listen: server.addresses, tls: { cert, key } });
  expect(again.addresses).toEqual(server.addresses);
});

test.each([
  "unix:/run/socket",
  "tcp://127.0.0.1:0",
  "holdfast+unix:relative",
  "holdfast+unix:/a?b",
  "holdfast+unix:/%zz",
])("%s is no address of a server", async (listen) => {
  await expect(startServer({ listen })).rejects.toThrow(TypeError);
});
