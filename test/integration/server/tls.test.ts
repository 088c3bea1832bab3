import { connect as connectPlain, createServer } from "node:net";
import { join } from "node:path";
import type { ConnectionOptions, TLSSocket } from "node:tls";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { expect, test } from "vitest";
import { connect } from "../../../src/index.ts";
import type { ServeOptions, Server } from "../../../src/server/server.ts";
import { until } from "../../../src/testing/until.ts";
import type { Authority, CertificateFiles } from "../../support/certificates.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import { FakeClock } from "../../support/fake-clock.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { cleanUpAfterEach, createTemporaryDirectory, onCleanup, startServer } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

type TlsServer = {
  readonly server: Server & { readonly logged: string[] };
  readonly port: number;
  readonly issuer: Authority;
  readonly files: CertificateFiles;
  /** The client's url; it trusts `ca` by default. */
  url(parameters?: string): string;
};

/** A TLS server with a certificate for these names. */
async function startTlsServer(
  names: readonly string[] = ["127.0.0.1"],
  options: Partial<ServeOptions> = {},
): Promise<TlsServer> {
  const dir = createTemporaryDirectory();
  const issuer = createAuthority();
  const files = writeCertificate(dir, issuer.issue(names), issuer);
  const { cert, key } = files;
  const server = await startServer({ in: dir, listen: "holdfasts://127.0.0.1:0", tls: { cert, key }, ...options });
  const port = Number(server.addresses[0]?.split(":").at(-1));
  return { server, port, issuer, files, url: (query = `?ca=${files.ca}`) => `holdfasts://127.0.0.1:${port}${query}` };
}

test("a client of holdfasts:// locks over TLS, checks the issuer and the name, and speaks TLS 1.3", async () => {
  const { server, url, port, files } = await startTlsServer();
  expect(server.addresses).toEqual([`holdfasts://127.0.0.1:${port}`]);
  const locks = await connect(url());
  onCleanup(() => locks.close());
  await locks.using("k", async (lock) => expect(lock.token).toBeGreaterThan(0n));
  const socket = await performHandshake(port, { ca: await readText(files.ca) });
  expect(socket.getProtocol()).toBe("TLSv1.3");
  socket.destroy();
});

test("a certificate that cannot be trusted is named, with the reason and the address", async () => {
  const { url, port } = await startTlsServer(["lock.example"]);
  const plainUrl = `holdfasts://127.0.0.1:${port}`;
  await expect(connect(plainUrl)).rejects.toThrow(
    `the certificate of ${plainUrl} is signed by an unknown issuer: name the issuer's certificate with ?ca=`,
  );
  await expect(connect(url())).rejects.toThrow(
    `the certificate of ${plainUrl} is for DNS:lock.example, not for 127.0.0.1`,
  );
  await expect(connect(`${url()}&servername=other.example`)).rejects.toThrow("not for other.example");
  const locks = await connect(`${url()}&servername=lock.example`);
  await locks.close();
});

test("a certificate that has expired is refused by the client, and the server warns of it", async () => {
  const dir = createTemporaryDirectory();
  const issuer = createAuthority();
  const { cert, key, ca } = writeCertificate(dir, issuer.issue(["127.0.0.1"], { age: 2, days: 1 }), issuer);
  const server = await startServer({ in: dir, listen: "holdfasts://127.0.0.1:0", tls: { cert, key } });
  const port = server.addresses[0]?.split(":").at(-1);
  expect(server.logged.join()).toMatch(/has expired on .*: clients refuse it/);
  await expect(connect(`holdfasts://127.0.0.1:${port}?ca=${ca}`)).rejects.toThrow(
    `the certificate of holdfasts://127.0.0.1:${port} has expired`,
  );
});

test("a client writes nothing until the server has shown its identity", async () => {
  const issuer = createAuthority();
  const { cert, key } = issuer.issue(["127.0.0.1"]);
  let got = 0;
  const foreignServer = createTlsServer({ cert, key }, (socket) => {
    socket
      .on("error", () => undefined)
      .on("data", (chunk) => {
        got += chunk.length;
      });
  });
  await new Promise<void>((resolve) => foreignServer.listen(0, "127.0.0.1", resolve));
  onCleanup(() => new Promise<void>((resolve) => void foreignServer.close(() => resolve())));
  const { port } = foreignServer.address() as { port: number };
  await expect(connect(`holdfasts://127.0.0.1:${port}`, { credential: "hf1_secret" })).rejects.toThrow(
    /unknown issuer/,
  );
  const connections = (): Promise<number> =>
    new Promise((resolve) => foreignServer.getConnections((_, count) => resolve(count)));
  await until(async () => (await connections()) === 0, { within: 2_000, what: "the end of the connection" });
  expect(got).toBe(0);
});

test("NODE_TLS_REJECT_UNAUTHORIZED changes nothing", async () => {
  const { port } = await startTlsServer();
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
  onCleanup(() => {
    delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  });
  await expect(connect(`holdfasts://127.0.0.1:${port}`)).rejects.toThrow(/unknown issuer/);
});

test("no credential crosses a network unencrypted: nothing is sent at all", async () => {
  let connections = 0;
  const plainServer = createServer((socket) => {
    connections++;
    socket.destroy();
  });
  await new Promise<void>((resolve) => plainServer.listen(0, "0.0.0.0", resolve));
  onCleanup(() => new Promise<void>((resolve) => void plainServer.close(() => resolve())));
  const { port } = plainServer.address() as { port: number };
  // 0.0.0.0 leads here, and is not a loopback address
  const attempt = connect(`holdfast://0.0.0.0:${port}`, { credential: "hf1_secret" });
  await expect(attempt).rejects.toThrow(/refusing to send the credential to .* without TLS: use holdfasts:\/\//);
  await expect(attempt).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  expect(connections).toBe(0);
});

test("a TLS hello to the plain port and plain bytes to the TLS port end at once, with a reason", async () => {
  const { server, url, port } = await startTlsServer();
  const open = await startServer();
  const plainServer = await startServer({ listen: "holdfast://127.0.0.1:0" });
  const plainPort = plainServer.addresses[0]?.split(":").at(-1);
  await expect(connect(`holdfasts://127.0.0.1:${plainPort}`)).rejects.toThrow(
    `holdfasts://127.0.0.1:${plainPort} does not use TLS: connect with holdfast://`,
  );
  await expect(connect(`holdfast://127.0.0.1:${port}`)).rejects.toThrow(
    `holdfast://127.0.0.1:${port}: this port uses TLS: connect with holdfasts://`,
  );
  expect(await responseTo(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")).toContain("this port uses TLS");
  const locks = await connect(url());
  onCleanup(() => locks.close());
  await locks.using("k", async () => undefined);
  await open.close();
  expect(server.stats().sessions).toBe(1);
});

test("an unfinished TLS handshake is ended after the time of a hello", async () => {
  const clock = new FakeClock();
  const { port, server } = await startTlsServer(["127.0.0.1"], { clock, http: "127.0.0.1:0" });
  const responses = Promise.all([
    responseTo(port, ""),
    responseTo(port, Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0x01])),
  ]);
  const isConnected = async (): Promise<boolean> =>
    (await (await fetch(`${server.httpAddress}/metrics`)).text()).includes("\nholdfast_connections 2\n");
  await until(isConnected, { within: 5_000, what: "both connections" });
  await clock.advance(5_001);
  expect(await responses).toEqual(["", ""]);
});

test("a client that speaks nothing newer than TLS 1.1 is refused", async () => {
  const { port, files } = await startTlsServer();
  const old: ConnectionOptions = { maxVersion: "TLSv1.1", minVersion: "TLSv1", ciphers: "DEFAULT@SECLEVEL=0" };
  await expect(performHandshake(port, { ...old, ca: await readText(files.ca) })).rejects.toThrow();
});

test("with a client CA a client must show a certificate of its issuer, and gets the reason otherwise", async () => {
  const clients = createAuthority("clients");
  const dir = createTemporaryDirectory();
  const ownCertificate = writeCertificate(dir, clients.issue(["worker"]), clients);
  const otherAuthority = createAuthority("others");
  const foreignCertificate = writeCertificate(
    createTemporaryDirectory(),
    otherAuthority.issue(["worker"]),
    otherAuthority,
  );
  const issuer = createAuthority();
  const files = writeCertificate(createTemporaryDirectory(), issuer.issue(["127.0.0.1"]), issuer);
  const server = await startServer({
    listen: "holdfasts://127.0.0.1:0",
    tls: { cert: files.cert, key: files.key, clientCa: ownCertificate.ca },
  });
  const url = `holdfasts://127.0.0.1:${server.addresses[0]?.split(":").at(-1)}?ca=${files.ca}`;
  await expect(connect(url)).rejects.toThrow(/requires a client certificate signed by a CA that it trusts/);
  await expect(connect(url)).rejects.toMatchObject({ code: "LOCK_STORE_REFUSED" });
  await expect(connect(`${url}&cert=${foreignCertificate.cert}&key=${foreignCertificate.key}`)).rejects.toThrow(
    /requires a client certificate/,
  );
  const locks = await connect(`${url}&cert=${ownCertificate.cert}&key=${ownCertificate.key}`);
  onCleanup(() => locks.close());
  await locks.using("k", async () => undefined);
});

test("a client that connects to the HTTP port gets the reason", async () => {
  const { server, files } = await startTlsServer(["127.0.0.1"], { http: "127.0.0.1:0" });
  const url = server.httpAddress?.replace("http:", "holdfast:");
  await expect(connect(url as string)).rejects.toThrow(
    `${url}: this port speaks HTTP: connect to the port of the lock`,
  );
  await expect(connect(`${url?.replace("holdfast:", "holdfasts:")}?ca=${files.ca}`)).rejects.toThrow(
    "does not use TLS",
  );
});

test("a url names both cert and key or neither, and the files must be readable and contain what they are for", async () => {
  await expect(connect("holdfasts://127.0.0.1:1?cert=/x")).rejects.toThrow("url must name both cert and key");
  const missing = join(createTemporaryDirectory(), "ca.pem");
  await expect(connect(`holdfasts://127.0.0.1:1?ca=${missing}`)).rejects.toThrow(
    `url: ca names ${missing}, which cannot be read (ENOENT)`,
  );
  const { files } = await startTlsServer();
  for (const [query, wrong] of [
    [`ca=${files.key}`, `ca names ${files.key}, which holds no PEM certificate`],
    [`cert=${files.key}&key=${files.key}`, `cert names ${files.key}, which holds no PEM certificate`],
    [`cert=${files.cert}&key=${files.cert}`, `key names ${files.cert}, which holds no PEM private key`],
  ]) {
    await expect(connect(`holdfasts://127.0.0.1:1?${query}`)).rejects.toThrow(`url: ${wrong}`);
  }
  await expect(connect("holdfasts://127.0.0.1:1?tls=no")).rejects.toThrow(/url has no parameter "tls"/);
});

async function readText(path: string): Promise<string> {
  return (await import("node:fs/promises")).readFile(path, "utf8");
}

function performHandshake(port: number, options: ConnectionOptions): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ host: "127.0.0.1", port, ...options }, () => resolve(socket));
    socket.on("error", reject);
    onCleanup(() => void socket.destroy());
  });
}

/** Everything the server sends until it ends the connection. */
function responseTo(port: number, bytes: string | Buffer): Promise<string> {
  return new Promise((resolve) => {
    let receivedText = "";
    const socket = connectPlain(port, "127.0.0.1", () => socket.write(bytes));
    socket.setEncoding("latin1").on("data", (text: string) => {
      receivedText += text;
    });
    socket.on("error", () => undefined).on("close", () => resolve(receivedText));
  });
}

/** Until then it tries again and again. */
const BRIEFLY = { connectTimeout: 500 };

test("an error for a dead port names the port", async () => {
  await expect(connect("holdfast://127.0.0.1:1", BRIEFLY)).rejects.toThrow(
    "holdfast://127.0.0.1:1 refused the connection",
  );
  await expect(connect("holdfasts://127.0.0.1:1", BRIEFLY)).rejects.toThrow(
    "holdfasts://127.0.0.1:1 refused the connection",
  );
  await expect(connect("holdfast://localhost:1", BRIEFLY)).rejects.toThrow(
    "holdfast://localhost:1 refused the connection",
  );
  const path = join(createTemporaryDirectory(), "none");
  await expect(connect(`holdfast+unix:${path}`, BRIEFLY)).rejects.toThrow(
    `holdfast+unix:${path} does not exist: no server listens on this path`,
  );
});
