// Filters the config table by the words typed.
(() => {
  const find = byId("find");
  if (!find) return;
  const rows = [...byId("values").rows];
  find.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    byId("none").hidden = rows.some((row) => !row.hidden);
  });
})();
