/** Certificates for the server of a file's tests. */

import { chmodSync, chownSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import type { CertificateFiles } from "../certificates.ts";
import { createAuthority, writeCertificate } from "../certificates.ts";
import { unprivilegedUser } from "./postgres.ts";

export interface TlsFiles {
  /** Of a server that is called "localhost" and 127.0.0.1. */
  readonly server: CertificateFiles;
  /** Of one that is called otherwise, by the same issuer. */
  readonly otherServer: CertificateFiles;
  /** The certificate of an issuer that has issued neither. */
  readonly wrongCa: string;
}

/** Readable for the users that servers run as; deleted after the tests of the file. */
export function createTlsFiles(): TlsFiles {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-tls-"));
  afterAll(() => rmSync(folder, { recursive: true }));
  chmodSync(folder, 0o755);
  const [authority, wrongAuthority] = [createAuthority("Right authority"), createAuthority("Wrong authority")];
  const write = (name: string, hosts: readonly string[], issuer = authority): CertificateFiles => {
    const path = join(folder, name);
    mkdirSync(path);
    const files = writeCertificate(path, authority.issue(hosts), issuer);
    const user = unprivilegedUser();
    // PostgreSQL accepts a key of its own user only
    if (user !== undefined) chownSync(files.key, user, user);
    return files;
  };
  return {
    server: write("server", ["localhost", "127.0.0.1"]),
    otherServer: write("other", ["db.example.org"]),
    wrongCa: write("wrong", ["localhost"], wrongAuthority).ca,
  };
}
