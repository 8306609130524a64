import{m as s,t as a,u as e}from"./screens.js";import"./shared.js";export{s as attention,a as decode,e as step};
