/** Removes user and password from the urls of stores: `new URL()` would refuse one with several hosts. */

/** A password that is not percent-encoded may contain the sign, too. */
const URL_USER = /^([a-z\d+]+:)(?:\/\/)?[^/?]*@/;
const URL_USER_IN_TEXT = /(\w:\/\/)[^/?\s]*@/g;

/** The url without user and password. */
export function redactUrl(url: string): string {
  // the paths of these may contain the sign
  return /^(?:sqlite|holdfast\+unix):/.test(url) ? url : url.replace(URL_USER, "$1//");
}

/** The text, with the same done to each url in it. */
export function redactUrls(text: string): string {
  return text.replace(URL_USER_IN_TEXT, "$1");
}
