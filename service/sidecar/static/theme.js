// Runs before the first paint, so that the page never flashes in the other theme.
try {
  const chosen = localStorage.getItem("vernier-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be refused; the system's preference stands then.
}
