// The page's address holds what is shown, so that a view can be sent to a colleague.

export const given = () => new URLSearchParams(window.location.search);

// Set these names in the address, drop those without a value, unless it is one to keep, and leave all others.
export function keep(values, keepsEmpty = false) {
  const search = given();
  for (const [name, value] of Object.entries(values)) {
    if (value || keepsEmpty) search.set(name, String(value));
    else search.delete(name);
  }
  const text = search.toString();
  window.history.replaceState(null, "", text ? `?${text}` : window.location.pathname);
}
