"""Where information comes from: search engines and page readers behind one small contract."""
