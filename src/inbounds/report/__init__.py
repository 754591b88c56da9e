"""How results are seen: figures for papers and one web page for everybody; both read files only."""
