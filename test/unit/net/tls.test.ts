import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createTlsFileReader } from "../../../src/net/tls.ts";
import { createAuthority, writeCertificate } from "../../support/certificates.ts";

const issuer = createAuthority();
const first = issuer.issue(["first"]);
const second = issuer.issue(["second"]);
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-tls-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

test("renewed files are used at the next reading", () => {
  const paths = writeCertificate(folder, first, issuer);
  const readFiles = createTlsFileReader(paths);
  expect(readFiles()).toEqual({ ca: issuer.cert, ...first });
  writeCertificate(folder, second, issuer);
  expect(readFiles()).toEqual({ ca: issuer.cert, ...second });
});

test("in the middle of a renewal, with a certificate that does not match its key or without a file, the last valid files are used", () => {
  const paths = writeCertificate(folder, first, issuer);
  const readFiles = createTlsFileReader(paths);
  writeFileSync(paths.cert, second.cert);
  expect(readFiles()).toEqual({ ca: issuer.cert, ...first });
  rmSync(paths.key);
  expect(readFiles()).toEqual({ ca: issuer.cert, ...first });
  writeFileSync(paths.key, second.key);
  expect(readFiles()).toEqual({ ca: issuer.cert, ...second });
});

test("a certificate that does not match its key is refused at first", () => {
  const paths = writeCertificate(folder, { cert: first.cert, key: second.key }, issuer);
  expect(() => createTlsFileReader(paths)).toThrow(/^url: ca, cert and key cannot be used: /);
});

test("a certificate without its key is refused, and a key alone", () => {
  expect(() => createTlsFileReader({ cert: "/c.pem" })).toThrow("url must name both cert and key, or neither");
  expect(() => createTlsFileReader({ key: "/k.pem" })).toThrow("url must name both cert and key, or neither");
});
