// Clients that are slow, many, or stop halfway: their own connections end, and other clients do not notice.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { connect } from "node:net";
import { join } from "node:path";
import { connect as connectSecurely } from "node:tls";
import { expect, test } from "vitest";
import { until } from "../../../src/testing/until.ts";
import { builtFile } from "../../support/built-file.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";
import {
  cleanUpAfterEach,
  createTemporaryDirectory,
  onCleanup,
  post,
  request,
  startHttpServer,
} from "../../support/http-fixture.ts";
import { checkLeaksAfterEach } from "../../support/leak-check.ts";
import { makeClaim, openClient } from "../../support/server-fixture.ts";

checkLeaksAfterEach();
cleanUpAfterEach();

/** A connection that has sent these bytes, what it received, and whether it has ended. */
function openRawConnection(
  url: string,
  bytes: string,
  socketOptions: Readonly<Record<string, unknown>> = {},
): { readonly socket: Socket; text(): string; ended(): boolean } {
  const target = { host: "127.0.0.1", port: Number(new URL(url).port), ...socketOptions };
  const socket = "ca" in socketOptions ? connectSecurely(target) : connect(target);
  onCleanup(() => {
    socket.destroy();
  });
  let text = "";
  let ended = false;
  socket.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  socket
    .on("error", () => undefined)
    .on("close", () => {
      ended = true;
    });
  socket.write(bytes);
  return { socket, text: () => text, ended: () => ended };
}

/** A server whose HTTP port speaks TLS, like one that other machines reach. */
async function startTlsServer() {
  const issuer = createAuthority();
  const { cert, key } = writeCertificate(createTemporaryDirectory(), issuer.issue(["localhost", "127.0.0.1"]), issuer);
  const server = await startHttpServer({ http: "0.0.0.0:0", tls: { cert, key }, insecure: true });
  return { url: server.url, ca: issuer.cert };
}

const REQUEST_HEAD = "POST /v1/claims HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";

/** Heads and bodies that trickle in are ended in time, and delay no other client. */
async function trickle(): Promise<void> {
  const { url, stats } = await startHttpServer();
  const heads = Array.from({ length: 100 }, () =>
    openRawConnection(url, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: "),
  );
  const bodies = Array.from({ length: 20 }, () =>
    openRawConnection(url, `${REQUEST_HEAD}Content-Length: 20\r\n\r\n{"key":`),
  );
  const halfOpenSockets = Array.from({ length: 20 }, () => openRawConnection(url, ""));
  const writeTimer = setInterval(() => {
    for (const { socket } of [...heads, ...bodies]) if (socket.writable) socket.write("b");
  }, 1_500);
  onCleanup(() => clearInterval(writeTimer));
  let longestMs = 0;
  const deadline = performance.now() + 9_000;
  while (performance.now() < deadline) {
    const started = performance.now();
    const held = await post(url, "/v1/claims", { key: "others", wait: 0 });
    expect(held.status).toBe(201);
    await post(url, "/v1/claims/release", { reference: held.json.reference });
    longestMs = Math.max(longestMs, performance.now() - started);
    // the other servers of this test have to work, too
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  // generous, since other test files run beside this one; a client delayed by the slow ones would wait for ten seconds
  expect(longestMs).toBeLessThan(5_000);
  await until(() => heads.every(({ ended }) => ended()), { within: 6_000, what: "the end of the slow heads" });
  expect(heads[0]?.text()).toContain("HTTP/1.1 408");
  expect(heads[0]?.text()).toContain('"code":"TIMEOUT"');
  await until(() => halfOpenSockets.every(({ ended }) => ended()), {
    within: 6_000,
    what: "the end of silent connections",
  });
  clearInterval(writeTimer);
  for (const { socket } of bodies) socket.destroy();
  expect(stats().claims).toBe(0);
}

/** Heads, bodies and handshakes of clients that keep writing, whatever the answer, end in time. */
async function keepWriting(scheme: "http" | "https"): Promise<void> {
  const it = await (scheme === "http" ? startHttpServer() : startTlsServer());
  const socketOptions = { allowHalfOpen: true, ...("ca" in it && { ca: it.ca, servername: "localhost" }) };
  const head = "GET /health HTTP/1.1\r\nHost: localhost\r\n";
  const lateConnection = openRawConnection(it.url, `${head}\r\n${head}X-A: `, socketOptions);
  const slowConnections = [
    openRawConnection(it.url, `${head}X-A: `, socketOptions),
    openRawConnection(it.url, "GET /hea", socketOptions),
    // behind a request that was answered
    lateConnection,
    // half of a TLS handshake, or of a method
    openRawConnection(it.url, "\u0016\u0003\u0001", { allowHalfOpen: true }),
  ];
  const writeTimer = setInterval(() => {
    for (const { socket } of slowConnections) if (socket.writable) socket.write("b");
  }, 300);
  onCleanup(() => clearInterval(writeTimer));
  // each closes when it is destroyed: none ends its own side
  await until(() => slowConnections.every(({ ended }) => ended()), {
    within: 25_000,
    what: `the end of the slow ones of ${scheme}`,
  });
  expect(lateConnection.text()).toContain("HTTP/1.1 200");
  expect(lateConnection.text()).toContain("HTTP/1.1 408");
  expect(slowConnections[0]?.text()).toContain('"code":"TIMEOUT"');
}

// in one test, since each waits for the same ten seconds
test("clients that trickle, or keep writing whatever the answer, are ended in time, by http and https, and delay no other", async () => {
  await Promise.all([trickle(), keepWriting("http"), keepWriting("https")]);
}, 40_000);

test("a client that half-closes its connection while its request waits leaves no queue entry", async () => {
  const { url, stats } = await startHttpServer();
  await post(url, "/v1/claims", { key: "k" });
  const body = '{"key":"k"}';
  const { socket } = openRawConnection(url, `${REQUEST_HEAD}Content-Length: ${body.length}\r\n\r\n${body}`);
  await until(() => stats().claims === 2, { within: 2_000, what: "its place" });
  socket.end();
  await expect.poll(() => stats().claims, { timeout: 2_000 }).toBe(1);
});

test("several waiting requests on one connection leave no queue entry when it ends", async () => {
  const { url, stats } = await startHttpServer();
  await post(url, "/v1/claims", { key: "k" });
  const body = '{"key":"k"}';
  const { socket } = openRawConnection(url, `${REQUEST_HEAD}Content-Length: ${body.length}\r\n\r\n${body}`.repeat(5));
  await until(() => stats().claims === 6, { within: 2_000, what: "their places" });
  socket.destroy();
  await expect.poll(() => stats().claims, { timeout: 2_000 }).toBe(1);
});

/** A memory figure of a process, in MB: VmRSS (now) or VmHWM (the most so far). */
function readMemory(pid: number, name: "VmRSS" | "VmHWM"): number {
  const kibibytes = new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return Number(kibibytes) / 1_024;
}

/** A server as a process, so that only its own memory is measured. */
async function startServerProgram(): Promise<{ readonly url: string; readonly pid: number }> {
  const program = `
    const { serve } = await import(${JSON.stringify(builtFile("dist/server/server.js"))});
    const { httpAddress } = await serve({ listen: "holdfast://127.0.0.1:0", http: "127.0.0.1:0", state: process.argv[1] });
    console.log(httpAddress);`;
  const args = ["--input-type=module", "-e", program, join(createTemporaryDirectory(), "state")];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "ignore"] });
  const ended = once(child, "exit");
  onCleanup(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const [line] = (await once(child.stdout, "data")) as [Buffer];
  return { url: line.toString().trim(), pid: child.pid as number };
}

const WAITING_BODY = '{"key":"k","wait":"1s"}';

test.each([
  ["waiting claims", `${REQUEST_HEAD}Content-Length: ${WAITING_BODY.length}\r\n\r\n${WAITING_BODY}`, 202],
  ["requests without waiting", "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 200],
])(
  "100,000 pipelined %s cost the server at most 50 MB, and at most 500 of them are served",
  async (_, text, status) => {
    const { url, pid } = await startServerProgram();
    await post(url, "/v1/claims", { key: "k", ttl: "5m" });
    for (let index = 0; index < 100; index++) await request(url, "/health");
    const before = readMemory(pid, "VmRSS");
    const connection = openRawConnection(url, text.repeat(100_000));
    await until(connection.ended, { within: 60_000, what: "the end of the connection" });
    const statuses = connection.text().match(/HTTP\/1\.1 \d+/g) ?? [];
    const served = statuses.filter((line) => line === `HTTP/1.1 ${status}`).length;
    // the end of the connection may overtake the last responses, since the client still sends
    expect(served).toBeGreaterThan(100);
    expect(served).toBeLessThanOrEqual(500);
    expect(statuses.slice(served).filter((line) => line !== "HTTP/1.1 503")).toEqual([]);
    const mebibytes = readMemory(pid, "VmHWM") - before;
    expect(mebibytes, `${Math.round(mebibytes)} MB`).toBeLessThan(50);
    expect((await request(url, "/health")).status).toBe(200);
  },
  90_000,
);

test("the number of connections of one address is limited, and those of the lock protocol stay", async () => {
  const { url, path } = await startHttpServer({ limits: { connectionsPerAddress: 10 } });
  const activeConnections = Array.from({ length: 10 }, () =>
    openRawConnection(url, "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
  );
  await until(() => activeConnections.every(({ text }) => text().includes("200 OK")), {
    within: 2_000,
    what: "ten answers",
  });
  await expect(request(url, "/health")).rejects.toThrow();
  // the metrics show it to the operator
  activeConnections[0]?.socket.write("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  const figures = ["", "_total", "_refused_total"].map(
    (suffix) => new RegExp(`^holdfast_http_connections${suffix} (\\d+)$`, "m"),
  );
  const values = (): (string | undefined)[] =>
    figures.map((figure) => figure.exec(activeConnections[0]?.text() ?? "")?.[1]);
  await until(() => values().every((it) => it !== undefined), { within: 5_000, what: "the figures" });
  expect(values()).toEqual(["10", "10", "1"]);
  const { createLocks } = await import("../../../src/client/locks.ts");
  const { lockServer } = await import("../../../src/drivers/server/driver.ts");
  const locks = createLocks(lockServer({ path }));
  expect(await (await locks.acquire("k")).release()).toBe(true);
  await locks.close();
  activeConnections[0]?.socket.destroy();
  await until(async () => (await request(url, "/health").catch(() => null))?.status === 200, {
    within: 2_000,
    what: "room for another",
  });
});

test("a server without HTTP loads no HTTP module", () => {
  const program = `
    const { serve } = await import(${JSON.stringify(builtFile("dist/server/server.js"))});
    const it = await serve({ listen: "holdfast://127.0.0.1:0", state: "none", ...(process.argv[1] === "http" && { http: "127.0.0.1:0" }) });
    await it.close();
    console.log(JSON.stringify(globalThis.loaded ?? []));`;
  const hooks = `
    import { register } from "node:module";
    import { MessageChannel } from "node:worker_threads";
    const { port1, port2 } = new MessageChannel();
    globalThis.loaded = [];
    port1.on("message", (url) => globalThis.loaded.push(url));
    port1.unref();
    const source = 'let port; export const initialize = (data) => { port = data.port; }; export const resolve = async (s, c, n) => { const r = await n(s, c); port.postMessage(r.url); return r; };';
    register("data:text/javascript," + encodeURIComponent(source), { data: { port: port2 }, transferList: [port2] });`;
  const run = (mode: string): string =>
    execFileSync(
      process.execPath,
      [
        "--import",
        `data:text/javascript,${encodeURIComponent(hooks)}`,
        "--input-type=module",
        "-e",
        `${program.replace("console.log", "await new Promise((r) => setTimeout(r, 100)); console.log")}`,
        mode,
      ],
      { encoding: "utf8" },
    );
  // the chunk with the HTTP API, and with the libraries that it needs
  expect(run("http")).toContain("/chunks/http-server-");
  const plainOutput = run("none");
  expect(plainOutput).toContain("serve");
  expect(plainOutput).not.toContain("/chunks/http-server-");
}, 30_000);

test("a slow list is answered although nothing else happens on the server", async () => {
  const server = await startHttpServer();
  const { driver } = await openClient(server.addresses[0] as string);
  const claims = Array.from({ length: 20_000 }, (_, n) => makeClaim(`k${n}`, { ttlMs: 60_000 }));
  await Promise.all(claims.map((claim) => driver.claim(claim)));
  const startedAt = performance.now();
  // an invalid cursor: all tags are searched. The next timer is set for the end of the five seconds of a hello
  const page = await request(server.url, "/v1/locks?prefix=none&cursor=aaaaaaaaaa");
  expect(page.json).toEqual({ locks: [], cursor: null });
  expect(performance.now() - startedAt).toBeLessThan(3_000);
});
