/** Questions to the HTTP interface of a store. Each ends in time, whatever the server does meanwhile: it may be killed or stopped. */

import { request } from "node:http";

/** At a load of 40 etcd takes almost 2 s for its metrics: with a shorter bound it would never seem ready. */
const ANSWER_MS = 10_000;

/** The text of an answer of status 200; empty: there was none. */
export function askHttp(port: number, path: string, body?: object): Promise<string> {
  return new Promise((resolve) => {
    const method = body === undefined ? "GET" : "POST";
    // a connection of its own: one that is kept may be of a process that has ended
    const asked = request({ host: "127.0.0.1", port, path, method, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => settle(response.statusCode === 200 ? text : ""));
      response.on("error", () => settle(""));
    });
    const timer = setTimeout(() => settle(""), ANSWER_MS);
    const settle = (text: string): void => {
      clearTimeout(timer);
      asked.destroy();
      resolve(text);
    };
    asked.on("error", () => settle(""));
    asked.end(body === undefined ? undefined : JSON.stringify(body));
  });
}
