import { X509Certificate } from "node:crypto";
import { expect, test } from "vitest";
import { createAuthority } from "../../support/certificates.ts";

test("a certificate is signed by its authority, for its names and key", () => {
  const issuer = createAuthority();
  const { cert, key } = issuer.issue(["lock.example", "127.0.0.1", "::1"]);
  const x509 = new X509Certificate(cert);
  expect(x509.verify(new X509Certificate(issuer.cert).publicKey)).toBe(true);
  expect(x509.checkHost("lock.example")).toBe("lock.example");
  expect(x509.checkIP("127.0.0.1")).toBe("127.0.0.1");
  expect(x509.checkIP("::1")).toBe("::1");
  expect(x509.checkHost("other.example")).toBeUndefined();
  expect(x509.checkIssued(new X509Certificate(issuer.cert))).toBe(true);
  expect(key).toContain("PRIVATE KEY");
});
