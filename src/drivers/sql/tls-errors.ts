/** Explains why TLS to a database failed. By messages: mysql2 replaces the codes of Node. */

interface TlsProblem {
  readonly message: RegExp;
  readonly explanation: string;
}

/** {ca} is how the issuer's certificate is named for this database. */
const PROBLEMS: readonly TlsProblem[] = [
  {
    message: /self.?signed certificate|unable to (?:verify the first|get (?:local )?issuer) certificate/i,
    explanation:
      "the certificate of the server is signed by an unknown issuer: name the issuer's certificate ({ca}), or make sure that you reach the right server",
  },
  {
    message: /does not match certificate's altnames/i,
    explanation:
      "the certificate of the server is for another name: connect by that name, or make sure that you reach the right server",
  },
  { message: /certificate has expired/i, explanation: "the certificate of the server has expired: renew it" },
  {
    message: /certificate is not yet valid/i,
    explanation: "the certificate of the server is not valid yet: are the clocks right?",
  },
  {
    message: /server does not support (?:SSL|secure) connection|ssl not enabled in the server/i,
    explanation: "the server does not support TLS: leave out the options of TLS, or enable it there",
  },
];

/**
 * What is wrong, and what to do; null: it is another error. A retry is useless.
 * @param ca how a client of this database names the issuer's certificate
 */
export function explainTlsError(error: Error, ca: string): string | null {
  const known = PROBLEMS.find(({ message }) => message.test(error.message));
  return known?.explanation.replace("{ca}", ca) ?? null;
}
