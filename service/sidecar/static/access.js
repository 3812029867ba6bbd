// The token of this tab: kept until the tab is closed, and asked for when the sidecar wants one.

const KEY = "vernier-token";
let asking = null;

/** The token, or null while there is none. */
export function token() {
  return sessionStorage.getItem(KEY);
}

/** Headers that identify the client. */
export function credentials() {
  const known = token();
  return known ? { authorization: `Bearer ${known}` } : {};
}

/**
 * After a 401: another token than the `refused` one, or null if the user enters none. However many requests were
 * refused, the page asks for a token once.
 */
export async function another(refused, why) {
  if (token() === refused) {
    asking ??= askPerson(why).finally(() => { asking = null; });
    await asking;
  }
  return token() === refused ? null : token();
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function askPerson(why) {
  const input = element("input", { type: "password", name: "token", autocomplete: "current-password", required: true });
  const form = element(
    "form",
    { method: "dialog" },
    element("p", { textContent: why }),
    element("label", {}, "Token ", input),
    " ",
    element("button", { textContent: "Go on" }),
  );
  const dialog = element("dialog", { id: "access" }, form);
  // What is typed here must not choose views or themes.
  dialog.addEventListener("keydown", (event) => event.stopPropagation());
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const given = input.value.trim();
      if (given) sessionStorage.setItem(KEY, given);
      dialog.remove();
      resolve();
    });
  });
}
