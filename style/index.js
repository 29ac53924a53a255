import "./index.css";
import "./runs.css";
